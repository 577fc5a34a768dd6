"""`cairn cluster`: its actions, and info and disks."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from cairnmq.cli.arguments import add_connection, add_json, connect, examples, natural
from cairnmq.cli.cluster_elect import run_elect
from cairnmq.cli.cluster_forget import run_forget
from cairnmq.cli.cluster_health import error_name, run_health
from cairnmq.cli.cluster_tables import find_report, run_brokers, run_journals
from cairnmq.cli.live import add_watch, watched
from cairnmq.cli.terminal import UsageError, size_text, write_json, write_line, write_table
from cairnmq.cli.topic_choice import natural_order
from cairnmq.types import host_port

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client

_LATER = ("drain", "rebalance", "transfer")
_SHOWN = {"cluster_id": "cluster", "brokers_down": "down"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows brokers, journals, disks and health, and elects leaders."
    examples(parser, "cairn cluster info", "cairn cluster health --watch", "cairn cluster journals")
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
        description="Prints `healthy` and exits with 0, or prints the problems and exits with 1. In a cluster it also "
        "shows its brokers, and what would be lost if one of them died now.",
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
    for action in (info, disks, health, *_journal_actions(actions)):
        add_json(action)
        add_connection(action)
    for name in _LATER:
        later = actions.add_parser(name)
        later.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        later.set_defaults(run=run_later)


def _journal_actions(actions: Any) -> list[argparse.ArgumentParser]:
    """Those that ask every broker what it knows of journals."""
    brokers = actions.add_parser(
        "brokers",
        help="brokers with their state and the journals they lead and host",
        description="Shows all brokers, also those that are down: state, journals led, hosted and in sync.",
    )
    examples(brokers, "cairn cluster brokers", "cairn cluster brokers --watch 1", "cairn cluster brokers --json")
    brokers.set_defaults(run=watched(run_brokers))
    journals = actions.add_parser(
        "journals",
        help="journals with their leader, replicas, and what each replica lacks",
        description="Shows each journal: leader, epoch, replicas, which are in sync, and what the others lack.",
    )
    journals.add_argument("journals", nargs="*", type=natural, metavar="JOURNAL", help="only these")
    examples(journals, "cairn cluster journals", "cairn cluster journals 3 --json", "cairn cluster journals --watch")
    journals.set_defaults(run=watched(run_journals))
    for action in (brokers, journals):
        add_watch(action)
    elect = actions.add_parser(
        "elect",
        help="give leadership back to the preferred brokers, or elect a leader that may lack records",
        description="Makes the preferred brokers leaders again where they are in sync. With --unclean a replica that "
        "is not in sync becomes leader of a journal that has none: acknowledged records may be lost. It says what may "
        "be lost, and asks.",
    )
    elect.add_argument(
        "--unclean", type=natural, action="append", metavar="JOURNAL", help="a journal without a leader; repeatable"
    )
    elect.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    examples(elect, "cairn cluster elect", "cairn cluster elect --unclean 3", "cairn cluster elect --unclean 3 --yes")
    elect.set_defaults(run=run_elect)
    forget = actions.add_parser(
        "forget",
        help="forget a broker that is gone for good and has no replicas",
        description="Ends the registration of a broker that will not come back. Refused while it is up, or a replica "
        "of a journal.",
    )
    forget.add_argument("broker", type=natural, metavar="BROKER")
    examples(forget, "cairn cluster forget 4")
    forget.set_defaults(run=run_forget)
    return [brokers, journals, elect, forget]


def run_info(arguments: argparse.Namespace) -> int:
    with connect(arguments, patient=False) as client:
        cluster = client.describe_cluster()
        topics = [topic for topic in client.metadata(None).topics.values() if not topic.internal]
        brokers = []
        for node in sorted(cluster.nodes, key=lambda node: node.node_id):
            apis = client.api_versions(node.node_id)
            row = {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            brokers.append(row | {"apis": apis, "log_dirs": _log_dirs(client, node.node_id)})
        report = find_report(client)
    partitions = sum(len(topic.partitions) for topic in topics)
    told: dict[str, object] = {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "topics": len(topics),
        "partitions": partitions,
    }
    if report is not None:
        told["journals"] = len(report.journals)
        told["brokers_down"] = [row.broker for row in report.brokers if row.state == "down"]
    if arguments.json:
        write_json(told | {"brokers": brokers})
        return 0
    for name, value in told.items():
        if name == "brokers_down":
            value = ", ".join(map(str, value)) if isinstance(value, list) and value else "-"
        write_line(f"{_SHOWN.get(name, name):<11} {value}")
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


def run_disks(arguments: argparse.Namespace) -> int:
    with connect(arguments, patient=False) as client:
        nodes = sorted(client.metadata([]).nodes)
        found = [(node, each) for node in nodes for each in client.log_dirs(node, contents=True)]
    if arguments.json:
        write_json(
            [
                {
                    "broker": node,
                    "path": each.path,
                    "error": error_name(each.error) if each.error else None,
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
            error_name(each.error) if each.error else "ok",
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


def run_later(arguments: argparse.Namespace) -> int:
    raise UsageError(f"`cairn cluster {arguments.action}` comes with a later release")
