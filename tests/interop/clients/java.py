"""Apache Kafka's own client, through the program in tests/interop/programs/java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from interop.clients.contract import Sent
from interop.clients.process import ProgramClient, line_of


class JavaClient(ProgramClient):
    name: ClassVar[str] = "java"
    lacks: ClassVar[Mapping[str, str]] = {}

    def fates(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", millis: int = 20_000
    ) -> list[list[str] | None]:
        """Of records sent in one batch: None, or the class and the message of the error that its sender gets."""
        told: list[list[str] | None] = self.ask(
            "fates", topic=topic, records=list(map(line_of, records)), codec=codec, acks="all", idempotent=True,
            size_max=1_000_000, linger=500, millis=millis,
        )  # fmt: skip
        return told
