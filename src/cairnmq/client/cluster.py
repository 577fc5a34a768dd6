"""Plans that ask brokers about themselves: which APIs they serve, and the state of their disks. Pure.

They ask once: that a broker does not answer is an answer."""

from __future__ import annotations

from msgspec import Struct

from cairnmq import __version__
from cairnmq.client.errors import Refused
from cairnmq.client.session import Plan, Session
from cairnmq.wire.apis import APIS
from cairnmq.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class LogDir(Struct, frozen=True):
    """A directory of a broker; -1: the broker does not tell. `error` is one of Kafka's codes."""

    path: str
    error: int
    total_bytes: int
    usable_bytes: int
    topics: dict[str, int] = {}  # how many bytes each takes, if that was asked


def api_versions(session: Session, node: int) -> Plan[dict[str, tuple[int, int]]]:
    """Name of an API -> lowest and highest version that the broker serves."""
    request = ApiVersionsRequest(client_software_name="cairnmq", client_software_version=__version__)
    answer = yield from session.ask(node, request, ApiVersionsResponse)
    if answer.error_code:
        raise Refused(answer.error_code, f"broker {node}")
    return {
        APIS[row.api_key].name if row.api_key in APIS else f"api {row.api_key}": (row.min_version, row.max_version)
        for row in answer.api_keys
    }


def log_dirs(session: Session, node: int, *, contents: bool = False) -> Plan[list[LogDir]]:
    """The directories of a broker, with what is in them if that is wanted: it may be much."""
    request = DescribeLogDirsRequest(topics=None if contents else [])
    answer = yield from session.ask(node, request, DescribeLogDirsResponse)
    if answer.error_code:
        raise Refused(answer.error_code, f"broker {node}")
    return [
        LogDir(
            row.log_dir,
            row.error_code,
            row.total_bytes,
            row.usable_bytes,
            {topic.name: sum(each.partition_size for each in topic.partitions) for topic in row.topics},
        )
        for row in answer.results
    ]
