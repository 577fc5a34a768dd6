"""The clients under test, in the order of the table's columns. A new client is one module and one line here."""

from __future__ import annotations

from interop.clients.aio import AiokafkaClient
from interop.clients.contract import Client
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.kcat import KcatClient
from interop.clients.librdkafka import LibrdkafkaClient

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (LibrdkafkaClient, AiokafkaClient, KcatClient, KafkaPythonClient)
}
PROGRAMS = {"kcat": "kcat"}
"""client -> the program it needs besides Python packages"""
