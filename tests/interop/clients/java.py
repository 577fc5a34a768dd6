"""Apache Kafka's own client, through the program in tests/interop/programs/java."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interop.clients.process import ProgramClient


class JavaClient(ProgramClient):
    name: ClassVar[str] = "java"
    lacks: ClassVar[Mapping[str, str]] = {}
