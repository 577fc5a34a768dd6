"""franz-go, through the program in tests/interop/programs/franz_go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interop.clients.process import ProgramClient


class FranzGoClient(ProgramClient):
    name: ClassVar[str] = "franz_go"
    lacks: ClassVar[Mapping[str, str]] = {
        "static leave": "its last heartbeat does not name the instance, which Kafka refuses too",
    }
