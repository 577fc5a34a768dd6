"""`cairn cluster`: info, health, disks."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_json, connect, examples
from cairnmq.cli.live import add_watch, watched
from cairnmq.cli.terminal import GREEN, RED, UsageError, paint, size_text, write_json, write_line, write_table
from cairnmq.cli.topic_choice import natural_order
from cairnmq.types import host_port

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

_LATER = ("brokers", "journals", "drain", "rebalance", "transfer")
_REASONS_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows brokers, disks and health."
    examples(parser, "cairn cluster info", "cairn cluster health", "cairn cluster disks --topics")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = actions.add_parser(
        "info", help="the cluster's id, brokers and sizes", description="Shows the cluster's id, brokers and sizes."
    )
    examples(info, "cairn cluster info", "cairn cluster info --json")
    info.set_defaults(run=run_info)
    disks = actions.add_parser(
        "disks",
        help="directories of brokers: size, free space, space used by topics",
        description="Shows the directories of each broker: size, free space, and the space used by topics.",
    )
    disks.add_argument("--topics", action="store_true", help="list the topics in each directory, largest first")
    examples(disks, "cairn cluster disks", "cairn cluster disks --topics", "cairn cluster disks --json")
    disks.set_defaults(run=run_disks)
    health = actions.add_parser(
        "health",
        help="exit 0 if healthy; otherwise list the problems and exit 1",
        description="Prints `healthy` and exits with 0, or prints the problems and exits with 1.",
    )
    health.add_argument(
        "--http",
        metavar="URL",
        default=os.environ.get("CAIRN_HTTP"),
        help="check /health/ready at this address (environment: CAIRN_HTTP; default: check through the Kafka protocol)",
    )
    add_watch(health)
    examples(
        health, "cairn cluster health", "cairn cluster health --http 127.0.0.1:8080", "cairn cluster health --watch"
    )
    health.set_defaults(run=watched(run_health))
    for action in (info, disks, health):
        add_json(action)
        add_connection(action)
    for name in _LATER:
        later = actions.add_parser(name)
        later.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        later.set_defaults(run=run_later)


def run_info(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        cluster = client.describe_cluster()
        topics = [topic for topic in client.metadata(None).topics.values() if not topic.internal]
        brokers = []
        for node in sorted(cluster.nodes, key=lambda node: node.node_id):
            apis = client.api_versions(node.node_id)
            row = {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            brokers.append(row | {"apis": apis, "log_dirs": _log_dirs(client, node.node_id)})
    partitions = sum(len(topic.partitions) for topic in topics)
    if arguments.json:
        write_json(
            {
                "cluster_id": cluster.cluster_id,
                "controller": cluster.controller,
                "topics": len(topics),
                "partitions": partitions,
                "brokers": brokers,
            }
        )
        return 0
    write_line(f"cluster     {cluster.cluster_id}")
    write_line(f"controller  {cluster.controller}")
    write_line(f"topics      {len(topics)}")
    write_line(f"partitions  {partitions}")
    write_line("")
    rows = [_broker_row(broker) for broker in brokers]
    write_table(("BROKER", "ADDRESS", "RACK", "APIS", "PRODUCE", "FETCH", "DISK-FREE"), rows)
    return 0


def _log_dirs(client: Client, node: int) -> list[dict[str, object]]:
    """Empty for a broker of another make that does not tell."""
    from cairnmq.client.errors import Unsupported

    try:
        dirs = client.log_dirs(node)
    except Unsupported:
        return []
    return [
        {"path": each.path, "error": each.error, "total_bytes": each.total_bytes, "usable_bytes": each.usable_bytes}
        for each in dirs
    ]


def _broker_row(broker: dict[str, object]) -> tuple[object, ...]:
    apis, dirs = broker["apis"], broker["log_dirs"]
    assert isinstance(apis, dict) and isinstance(dirs, list)
    versions = ["{}-{}".format(*apis[name]) if name in apis else "-" for name in ("Produce", "Fetch")]
    free = ", ".join(f"{size_text(d['usable_bytes'])} of {size_text(d['total_bytes'])}" for d in dirs)
    host, port = broker["host"], broker["port"]
    assert isinstance(host, str) and isinstance(port, int)
    return broker["id"], host_port(host, port), broker["rack"] or "-", len(apis), *versions, free or "-"


def run_health(arguments: argparse.Namespace) -> int:
    asked = "http" if arguments.http else "protocol"
    reasons = _ask_http(arguments.http, arguments.timeout) if arguments.http else _ask_brokers(arguments)
    if arguments.json:
        write_json({"healthy": not reasons, "reasons": reasons, "asked": asked})
    else:
        verdict, colour = ("unhealthy", RED) if reasons else ("healthy", GREEN)
        write_line(paint(verdict, colour, sys.stdout))
        for reason in reasons[:_REASONS_SHOWN]:
            write_line(f"  {reason}")
        if len(reasons) > _REASONS_SHOWN:
            write_line(f"  and {len(reasons) - _REASONS_SHOWN} more")
    return 1 if reasons else 0


def run_disks(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        nodes = sorted(client.metadata([]).nodes)
        found = [(node, each) for node in nodes for each in client.log_dirs(node, contents=True)]
    if arguments.json:
        write_json(
            [
                {
                    "broker": node,
                    "path": each.path,
                    "error": _name(each.error) if each.error else None,
                    "total_bytes": each.total_bytes,
                    "usable_bytes": each.usable_bytes,
                    "topics": each.topics,
                }
                for node, each in found
            ]
        )
        return 0
    rows = [
        (
            node,
            each.path,
            size_text(each.total_bytes),
            size_text(each.usable_bytes),
            size_text(sum(each.topics.values())),
            _name(each.error) if each.error else "ok",
        )
        for node, each in found
    ]
    write_table(("BROKER", "PATH", "TOTAL", "FREE", "TOPICS", "STATE"), rows)
    if arguments.topics:
        for node, each in found:
            largest = sorted(each.topics.items(), key=lambda item: (-item[1], natural_order(item[0])))
            write_line("")
            write_table(("BROKER", "TOPIC", "SIZE"), [(node, name, size_text(size)) for name, size in largest])
    return 0


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


def _ask_brokers(arguments: argparse.Namespace) -> list[str]:
    """Brokers that do not answer, disks that failed, partitions without a leader."""
    from cairnmq.client.errors import ClientError, Unsupported
    from cairnmq.errors import ErrorCode

    reasons = []
    try:
        with connect(arguments) as client:
            cluster = client.metadata(None)
            if cluster.controller not in cluster.nodes:
                reasons.append("the cluster has no controller")
            for node in sorted(cluster.nodes):
                try:
                    dirs = client.log_dirs(node)
                except Unsupported:
                    continue  # a broker of another make; it answered, and that is what we know
                except ClientError as failed:
                    reasons.append(f"broker {node}: {failed}")
                    continue
                reasons += [f"broker {node}: {each.path}: {_name(each.error)}" for each in dirs if each.error]
            for topic in cluster.topics.values():
                if topic.error not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
                    reasons.append(f"topic {topic.name}: {_name(topic.error)}")
                reasons += [
                    f"partition {topic.name}-{each.index} has no leader"
                    for each in topic.partitions
                    if each.leader not in cluster.nodes
                ]
    except ClientError as failed:
        reasons.append(str(failed))
    return reasons


def _name(code: int) -> str:
    from cairnmq.errors import ErrorCode

    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return "storage has stopped or its disk has failed; see the broker's log (KAFKA_STORAGE_ERROR)"
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def run_later(arguments: argparse.Namespace) -> int:
    raise UsageError(f"`cairn cluster {arguments.action}` comes with a later release")
