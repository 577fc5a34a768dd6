"""`cairn config`: list, get, set, unset, for the settings of brokers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_json, completes, connect, examples, natural, setting, utf8
from cairnmq.cli.terminal import UsageError, note, write_json, write_line, write_table

if TYPE_CHECKING:
    from cairnmq.client.admin import Alteration, Config
    from cairnmq.client.blocking import Client

ALL_BROKERS = ""  # the name of the resource that stands for them
_DEFAULT_SOURCE = 5
_SOURCES = {
    2: "set for this broker",
    3: "set for all brokers",
    4: "set at startup",
    _DEFAULT_SOURCE: "default",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows and changes the settings of brokers. Settings of topics: `cairn topic alter` and `cairn topic describe`."
    )
    examples(
        parser, "cairn config list", "cairn config get log.retention.ms", "cairn config set log.retention.ms=86400000"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        aliases=["describe"],
        help="list settings with value, source, and whether they can be changed while the broker runs",
        description="Lists settings that are not at their default, or those that match a pattern.",
    )
    completes(
        "settings",
        listing.add_argument(
            "patterns", nargs="*", type=utf8, metavar="NAME", help="only settings that match (wildcards * and ?)"
        ),
    )
    listing.add_argument("-a", "--all", action="store_true", help="include settings at their default")
    listing.add_argument("--doc", action="store_true", help="show the description of each setting")
    add_json(listing)
    examples(listing, "cairn config list", "cairn config list --all", "cairn config list 'log.retention.*' --doc")
    listing.set_defaults(run=run_list)

    get = actions.add_parser("get", help="print the value of settings", description="Prints the value of settings.")
    completes("settings", get.add_argument("names", nargs="+", type=utf8, metavar="NAME"))
    add_json(get)
    examples(get, "cairn config get log.retention.ms", "cairn config get num.partitions auto.create.topics.enable")
    get.set_defaults(run=run_get)

    change = actions.add_parser(
        "set",
        help="change settings while the broker runs",
        description="Changes settings while the broker runs. The changes are stored and override flags and files.",
    )
    completes("settings", change.add_argument("changes", nargs="+", type=setting, metavar="NAME=VALUE"))
    examples(
        change,
        "cairn config set log.retention.ms=86400000",
        "cairn config set log.retention.ms=86400000 message.max.bytes=2000000",
        "cairn config set log.retention.ms=86400000 --broker 1",
    )
    change.set_defaults(run=run_set)

    unset = actions.add_parser(
        "unset",
        help="undo `set`",
        description="Undoes `cairn config set`: the setting returns to its value at startup, or to its default.",
    )
    completes("settings", unset.add_argument("names", nargs="+", type=utf8, metavar="NAME"))
    examples(unset, "cairn config unset log.retention.ms")
    unset.set_defaults(run=run_unset)

    for action in (listing, get):
        action.add_argument(
            "--broker", type=natural, metavar="ID", help="show settings of this broker (default: the controller)"
        )
    for action in (change, unset):
        action.add_argument(
            "--broker", type=natural, metavar="ID", help="change only this broker (default: all brokers)"
        )
    for action in (listing, get, change, unset):
        add_connection(action)


def run_list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = _settings(client, arguments.broker)
    patterns = _current(arguments.patterns)
    if patterns:
        _refuse_unknown(patterns, found)
        shown = [each for each in found if any(fnmatchcase(each.name, pattern) for pattern in patterns)]
    else:
        shown = [each for each in found if arguments.all or each.source != _DEFAULT_SOURCE]
    if arguments.json:
        write_json([_as_json(each) for each in shown])
        return 0
    if not shown:
        note("all settings are at their default; --all lists them")
        return 0
    headings = ["NAME", "VALUE", "SOURCE", "CHANGE"] + (["MEANING"] if arguments.doc else [])
    rows = [
        [each.name, _value(each), _SOURCES.get(each.source, "-"), "at startup" if each.read_only else "any time"]
        + ([each.documentation or "-"] if arguments.doc else [])
        for each in shown
    ]
    write_table(headings, rows)
    return 0


def run_get(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = _settings(client, arguments.broker)
    names = _current(arguments.names)
    _refuse_unknown(names, found)
    by_name = {each.name: each for each in found}
    wanted = [by_name[name] for name in names]
    if arguments.json:
        write_json([_as_json(each) for each in wanted])
    elif len(wanted) == 1:
        write_line(_value(wanted[0]))
    else:
        for each in wanted:
            write_line(f"{each.name}={_value(each)}")
    return 0


def run_set(arguments: argparse.Namespace) -> int:
    from cairnmq.client.admin import settings_as_changes

    wanted = {_current([name])[0]: text for name, text in arguments.changes}
    _change(arguments, list(wanted), settings_as_changes(wanted, []))
    for name, value in wanted.items():
        note(f"set {name}={value} {_for(arguments)}")
    return 0


def run_unset(arguments: argparse.Namespace) -> int:
    from cairnmq.client.admin import settings_as_changes

    names = _current(arguments.names)
    _change(arguments, names, settings_as_changes({}, names))
    for name in names:
        note(f"unset {name} {_for(arguments)}")
    return 0


def _change(arguments: argparse.Namespace, names: list[str], changes: list[Alteration]) -> None:
    from cairnmq.client.admin import BROKER_RESOURCE

    with connect(arguments) as client:
        found = _settings(client, arguments.broker)
        _refuse_unknown(names, found)  # brokers accept the removal of unknown names
        fixed = [each.name for each in found if each.name in names and each.read_only]
        if fixed:
            raise UsageError(
                f"{fixed[0]} cannot be changed while the broker runs; start the broker with --set {fixed[0]}=VALUE, "
                "or put the setting into its --config file"
            )
        resource = ALL_BROKERS if arguments.broker is None else str(arguments.broker)
        client.incremental_alter_configs(BROKER_RESOURCE, resource, changes)


def _settings(client: Client, broker: int | None) -> list[Config]:
    from cairnmq.client.admin import BROKER_RESOURCE

    cluster = client.describe_cluster()
    if broker is not None and broker not in [node.node_id for node in cluster.nodes]:
        raise UsageError(f"there is no broker {broker}; `cairn cluster info` shows those that run")
    node = cluster.controller if broker is None else broker
    return sorted(client.describe_configs(BROKER_RESOURCE, str(node)), key=lambda config: config.name)


def _refuse_unknown(names: Iterable[str], found: list[Config]) -> None:
    from cairnmq.settings.definition import nearest

    known = [each.name for each in found]
    for name in names:
        if not any(fnmatchcase(each, name) for each in known):
            raise UsageError(
                f"there is no setting {name}{nearest(name, known) or '; `cairn config list -a` shows all'}"
            )


def _current(names: Iterable[str]) -> list[str]:
    """Names under which a setting was known before become today's."""
    from cairnmq.settings.broker_table import current_name

    return [current_name(name) for name in names]


def _value(config: Config) -> str:
    return "(hidden)" if config.sensitive else "" if config.value is None else config.value


def _as_json(config: Config) -> dict[str, object]:
    return {
        "name": config.name,
        "value": None if config.sensitive else config.value,
        "source": _SOURCES.get(config.source, "unknown"),
        "dynamic": not config.read_only,
        "documentation": config.documentation,
    }


def _for(arguments: argparse.Namespace) -> str:
    return "for all brokers" if arguments.broker is None else f"for broker {arguments.broker}"
