"""The clients under test, in the order of the table's columns. A new client is one module and one line here."""

from __future__ import annotations

from pathlib import Path

from interop.clients.aio import AiokafkaClient
from interop.clients.contract import Client
from interop.clients.franz_go import FranzGoClient
from interop.clients.java import JavaClient
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.kafkajs import KafkajsClient
from interop.clients.kcat import KcatClient
from interop.clients.librdkafka import LibrdkafkaClient
from interop.clients.process import PROGRAMS_DIR

CLIENTS: dict[str, type[Client]] = {
    client.name: client
    for client in (
        LibrdkafkaClient,
        AiokafkaClient,
        KcatClient,
        JavaClient,
        KafkaPythonClient,
        KafkajsClient,
        FranzGoClient,
    )
}
PROGRAMS = {
    "kcat": "kcat",
    "java": JavaClient.command()[0],
    "kafkajs": KafkajsClient.command()[0],
    "franz_go": FranzGoClient.command()[0],
}
"""client -> the program it needs besides Python packages"""
BUILT = {name for name, program in PROGRAMS.items() if Path(program).parent == PROGRAMS_DIR}
"""Those that `tools/setup_clients.sh` builds."""
