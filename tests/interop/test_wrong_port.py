"""The two ports of a broker are easy to mix up: both sides say so at once."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import cairnmq
from broker_process import wait_until


@pytest.fixture(scope="module")
def broker() -> cairnmq.Broker:
    with cairnmq.Broker(http=True) as running:
        yield running


def test_a_kafka_client_at_the_http_port(broker: cairnmq.Broker) -> None:
    """Before, both sides waited for 30 seconds."""
    assert broker.url is not None
    address = broker.url.removeprefix("http://")
    done = subprocess.run(
        [sys.executable, "-m", "cairnmq", "topic", "list", "-b", address], capture_output=True, text=True, timeout=25
    )
    assert done.returncode == 1
    assert "it is an HTTP server; use the port for Kafka clients (cairn serve --listen)" in done.stderr


def test_a_browser_at_the_kafka_port(broker: cairnmq.Broker) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{broker.bootstrap}/", timeout=25)
    assert refused.value.code == 400
    assert refused.value.read().decode() == f"This is a Kafka port; the status page is at {broker.url}.\n"
    line = f"looks like HTTP, but this is the Kafka port; the status page is at {broker.url}"
    wait_until(lambda: line in broker.log(), 30, "the line in the log")


def test_a_client_with_tls(broker: cairnmq.Broker) -> None:
    """Before, the log had a request of 369295618 bytes."""
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=25) as plain, pytest.raises(OSError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    wait_until(lambda: "looks like TLS, but this port is not encrypted" in broker.log(), 30, "the line in the log")
