"""`cairn cluster health`: what is wrong, and in a cluster what the death of each broker would cost."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import HANGING_SECONDS, connect
from cairnmq.cli.cluster_tables import find_report, write_brokers
from cairnmq.cli.terminal import BOLD, DIM, GREEN, RED, UsageError, paint, write_json, write_line

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.cluster_report import ClusterReport
    from cairnmq.client.session import Cluster

_REASONS_SHOWN = 20


def run_health(arguments: argparse.Namespace) -> int:
    report = None
    if arguments.http:
        asked, reasons = "http", _ask_http(arguments.http, arguments.timeout)
    else:
        asked = "protocol"
        reasons, report = _ask_brokers(arguments)
    if arguments.json:
        told: dict[str, object] = {"healthy": not reasons, "reasons": reasons, "asked": asked}
        write_json(told if report is None else told | _as_json(report))
        return 1 if reasons else 0
    verdict, colour = ("unhealthy", RED) if reasons else ("healthy", GREEN)
    write_line(paint(verdict, colour, sys.stdout))
    for reason in reasons[:_REASONS_SHOWN]:
        write_line(f"  {reason}")
    if len(reasons) > _REASONS_SHOWN:
        write_line(f"  and {len(reasons) - _REASONS_SHOWN} more")
    if report is not None:
        _write_cluster(report)
    return 1 if reasons else 0


def _as_json(report: ClusterReport) -> dict[str, object]:
    from cairnmq.client.cluster_outlook import outlooks

    return {
        "notes": report.notes,
        "brokers": report.brokers,
        "journals": report.journals,
        "if_it_died_now": outlooks(report),
    }


def _write_cluster(report: ClusterReport) -> None:
    from cairnmq.client.cluster_outlook import outlooks

    for text in report.notes:
        write_line(paint(f"  note: {text}", DIM, sys.stdout))
    write_line("")
    write_brokers(report)
    write_line("")
    write_line(paint("IF IT DIED NOW", BOLD, sys.stdout))
    for outlook in outlooks(report):
        first, *others = outlook.sentences() or ["nothing would change"]
        write_line(f"broker {outlook.broker}: {first}")
        for other in others:
            write_line(" " * len(f"broker {outlook.broker}: ") + other)


def _ask_brokers(arguments: argparse.Namespace) -> tuple[list[str], ClusterReport | None]:
    """Brokers that do not answer, disks that failed, journals and partitions without a leader. The report is of a
    cluster; one broker alone has none."""
    from cairnmq.client.errors import ClientError

    reasons: list[str] = []
    report = None
    try:
        with connect(arguments, patient=False) as client:
            cluster = client.metadata(None)
            if len(cluster.nodes) > 1:
                client.timeout = min(client.timeout, HANGING_SECONDS)
            report = find_report(client)
            if report is not None:
                reasons += report.problems
            elif cluster.controller not in cluster.nodes:
                reasons.append("the cluster has no controller")
            reasons += _directories(client, cluster, report)
            reasons += _partitions(cluster, led=report is None or all(row.leader >= 0 for row in report.journals))
    except ClientError as failed:
        reasons.append(str(failed))
    return reasons, report


def _directories(client: Client, cluster: Cluster, report: ClusterReport | None) -> list[str]:
    """Brokers that the report calls silent or down are not asked again: each would be waited for."""
    from cairnmq.client.cluster_report import DOWN, SILENT
    from cairnmq.client.errors import ClientError, Unsupported

    reasons = []
    silent = {row.broker for row in report.brokers if row.state in (SILENT, DOWN)} if report is not None else set()
    for node in sorted(cluster.nodes.keys() - silent):
        try:
            dirs = client.log_dirs(node)
        except Unsupported:
            continue  # a broker of another make; it answered, and that is what we know
        except ClientError as failed:
            reasons.append(f"broker {node}: {failed}")
            continue
        reasons += [f"broker {node}: {each.path}: {error_name(each.error)}" for each in dirs if each.error]
    return reasons


def _partitions(cluster: Cluster, *, led: bool) -> list[str]:
    """Unless all journals are led, there are too many partitions without a leader to name each."""
    from cairnmq.errors import ErrorCode

    reasons = []
    alone = 0
    for topic in cluster.topics.values():
        if topic.error not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
            reasons.append(f"topic {topic.name}: {error_name(topic.error)}")
        for each in topic.partitions:
            if each.leader not in cluster.nodes:
                alone += 1
                if led:
                    reasons.append(f"partition {topic.name}-{each.index} has no leader")
    if alone and not led:
        reasons.append(f"partitions without a leader: {alone:,}")
    return reasons


def _ask_http(place: str, timeout: float) -> list[str]:
    """What /health/ready says; a broker that recovers answers it before it takes requests."""
    import json
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, build_opener

    from cairnmq.os_errors import reason_of

    url = (place if "://" in place else f"http://{place}").rstrip("/") + "/health/ready"
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--http {place} is not HOST:PORT or a URL")
    try:
        # Health is asked of this very address, never of a proxy.
        with build_opener(ProxyHandler({})).open(url, timeout=timeout) as answer:
            said = json.load(answer)
    except HTTPError as refused:
        try:
            said = json.load(refused)
        except (ValueError, OSError, HTTPException):
            return [f"{url} responded with HTTP {refused.code}; --http takes the address of the status page"]
    except (URLError, OSError, OverflowError) as failed:
        reason = getattr(failed, "reason", failed)
        return [f"cannot ask {url}: {reason_of(reason) if isinstance(reason, OSError) else reason}"]
    except HTTPException:
        return [f"{url} is not a broker's: it does not speak HTTP"]
    except ValueError:
        return [f"{url} is not a broker's: its response is not JSON"]
    if not isinstance(said, dict) or "ready" not in said:
        return [f"{url} is not a broker's"]
    return [] if said["ready"] else [str(reason) for reason in said.get("reasons") or ["not ready"]]


def error_name(code: int) -> str:
    """For people."""
    from cairnmq.errors import ErrorCode

    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return "storage has stopped or its disk has failed; see the broker's log (KAFKA_STORAGE_ERROR)"
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
