"""`cairn cluster`: info, health."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_json, connect
from cairnmq.cli.terminal import UsageError, write_json, write_line, write_table
from cairnmq.types import host_port

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

_LATER = ("brokers", "journals", "drain", "rebalance", "transfer")
_REASONS_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = actions.add_parser("info", help="the cluster's id, brokers and sizes")
    info.set_defaults(run=run_info)
    health = actions.add_parser("health", help="exit 0 if everything works, else 1 and what does not")
    health.add_argument(
        "--http",
        metavar="URL",
        default=os.environ.get("CAIRN_HTTP"),
        help="ask the broker's /health/ready there (environment: CAIRN_HTTP; default: ask by Kafka's protocol)",
    )
    health.set_defaults(run=run_health)
    for action in (info, health):
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
    free = ", ".join(_share(each["usable_bytes"], each["total_bytes"]) for each in dirs)
    host, port = broker["host"], broker["port"]
    assert isinstance(host, str) and isinstance(port, int)
    return broker["id"], host_port(host, port), broker["rack"] or "-", len(apis), *versions, free or "-"


def _share(usable: int, total: int) -> str:
    return f"{usable / 2**30:.1f} of {total / 2**30:.1f} GiB" if total > 0 else "unknown"


def run_health(arguments: argparse.Namespace) -> int:
    asked = "http" if arguments.http else "protocol"
    reasons = _ask_http(arguments.http, arguments.timeout) if arguments.http else _ask_brokers(arguments)
    if arguments.json:
        write_json({"healthy": not reasons, "reasons": reasons, "asked": asked})
    else:
        write_line("unhealthy" if reasons else "healthy")
        for reason in reasons[:_REASONS_SHOWN]:
            write_line(f"  {reason}")
        if len(reasons) > _REASONS_SHOWN:
            write_line(f"  and {len(reasons) - _REASONS_SHOWN} more")
    return 1 if reasons else 0


def _ask_http(place: str, timeout: float) -> list[str]:
    """What /health/ready says; a broker that recovers answers it before it takes requests."""
    import json
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, build_opener

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
            return [f"{url} answered {refused.code}"]
    except (URLError, OSError, OverflowError) as failed:
        return [f"cannot ask {url}: {getattr(failed, 'reason', failed)}"]
    except HTTPException:
        return [f"{url} is not a broker's: it does not speak HTTP"]
    except ValueError:
        return [f"{url} is not a broker's: its answer is no JSON"]
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
                reasons.append("there is no controller")
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
