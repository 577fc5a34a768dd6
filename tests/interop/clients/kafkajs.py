"""kafkajs, through the program in tests/interop/programs/kafkajs. It reads only as a member of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interop.clients.process import ProgramClient


class KafkajsClient(ProgramClient):
    name: ClassVar[str] = "kafkajs"
    lacks: ClassVar[Mapping[str, str]] = {
        "commit": "kafkajs commits only as a member of a group",
        "null header": "its producer fails on a header without a value",
        "range error": "kafkajs goes on at the end of the log by itself",
        "incremental alter": "its admin client has only the older AlterConfigs request",
        "static": "kafkajs has no static members",
        "consumer protocol": "kafkajs has only the classic protocol",
        "cooperative": "kafkajs has no cooperative assignor",
        "later topics": "kafkajs looks for matching topics only when it subscribes",
    }
