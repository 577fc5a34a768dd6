"""Plans that ask brokers about themselves: which APIs they serve, their disks, the journals of the cluster. Pure.

They ask once: that a broker does not answer is an answer."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cairnmq import __version__
from cairnmq.client.errors import Refused
from cairnmq.client.session import Plan, Session
from cairnmq.wire.apis import APIS
from cairnmq.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeJournalsRequest,
    DescribeJournalsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectUncleanRequest,
    ElectUncleanResponse,
    ForgetBrokerRequest,
    ForgetBrokerResponse,
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


def describe_journals(
    session: Session, node: int | None = None, journals: Iterable[int] | None = None
) -> Plan[DescribeJournalsResponse]:
    """What a broker (None: any) knows of brokers and journals, and in detail of those that it leads. Only a CairnMQ
    answers this."""
    request = DescribeJournalsRequest(journals=None if journals is None else list(journals))
    answer = yield from session.ask(node, request, DescribeJournalsResponse)
    if answer.error_code:
        where = "cluster" if node is None else f"broker {node}"
        raise Refused(answer.error_code, where, answer.error_message)
    return answer


def elect_unclean(session: Session, journals: Iterable[int], timeout_ms: int) -> Plan[dict[int, Refused | None]]:
    """Gives each journal a leader that may lack acknowledged records; None where that was done."""
    request = ElectUncleanRequest(journals=list(journals), timeout_ms=timeout_ms)
    answer = yield from session.ask(None, request, ElectUncleanResponse)
    return {
        row.journal: Refused(row.error_code, f"journal {row.journal}", row.error_message) if row.error_code else None
        for row in answer.results
    }


def forget_broker(session: Session, broker: int) -> Plan[None]:
    """Refused while the broker is up, or a replica of a journal."""
    answer = yield from session.ask(None, ForgetBrokerRequest(broker_id=broker), ForgetBrokerResponse)
    if answer.error_code:
        raise Refused(answer.error_code, f"broker {broker}", answer.error_message)
