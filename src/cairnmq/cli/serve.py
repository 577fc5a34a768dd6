"""`cairn serve`: reads the flags into ServeOptions and hands over to the broker, which is imported only then."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from cairnmq.broker.options import Address, ServeOptions, parse_address
from cairnmq.cli.arguments import examples, natural, setting
from cairnmq.cli.terminal import UsageError

_DEFAULTS = ServeOptions()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs a broker, alone or as one of a cluster, until Ctrl-C or SIGTERM."
    parser.argument_default = argparse.SUPPRESS  # a flag that was not given leaves no trace, so settings may fill it
    parser.add_argument("--data", metavar="DIR", help=f"data directory (default {_DEFAULTS.data})")
    parser.add_argument(
        "--journal-dir", metavar="DIR", help="directory for journals; a dedicated disk is best (default DIR/journal)"
    )
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help=f"address for Kafka clients (default {_DEFAULTS.listen}; port 0: any free one)",
    )
    parser.add_argument(
        "--advertise",
        type=_address,
        metavar="HOST:PORT",
        help="address that clients connect to (default: --listen)",
    )
    http = parser.add_mutually_exclusive_group()
    http.add_argument(
        "--http", type=_address, metavar="HOST:PORT", help=f"status page, health, metrics (default {_DEFAULTS.http})"
    )
    http.add_argument("--no-http", dest="http", action="store_const", const=None, help="do not serve the status page")
    parser.add_argument(
        "--insecure", action="store_true", help="allow addresses that other machines can reach, without authentication"
    )
    _add_cluster(parser)
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file or a Kafka server.properties")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=setting,
        metavar="NAME=VALUE",
        help="one setting, Kafka's names; repeatable",
    )
    for name, choices, text in (
        ("level", "debug|info|warning|error", "log level (default info)"),
        ("format", "text|json", "readable text (default), or one JSON object per line"),
    ):
        parser.add_argument(
            f"--log-{name}",
            dest="settings",
            action="append",
            type=partial(_logging, name, choices.split("|")),
            metavar=choices,
            help=text,
        )
    parser.add_argument("--ready-file", metavar="PATH", help="write a JSON file once the broker accepts requests")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="start even though a disk is lost, a journal is damaged or meta.db is an old copy, and keep whatever "
        "survived (default: list what is missing and exit)",
    )
    examples(
        parser,
        "cairn serve",
        "cairn serve --data /var/lib/cairn --listen 127.0.0.1:9192 --http 127.0.0.1:8081",
        "cairn serve --listen 0.0.0.0:9092 --advertise broker.example:9092 --insecure",
        "cairn serve --config server.properties --set num.partitions=6",
        "cairn serve --node-id 2 --data data2 --listen 127.0.0.1:9093 --no-http --metadata sqlite:cluster.db",
    )
    parser.set_defaults(run=run)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Who this broker is, and where it meets others."""
    parser.add_argument("--node-id", type=natural, metavar="N", help=f"ID of this broker (default {_DEFAULTS.node_id})")
    parser.add_argument("--rack", metavar="R", help="rack or availability zone of this broker")
    parser.add_argument(
        "--metadata",
        metavar="STORE",
        help="sqlite (default: in the data directory); or what the brokers of a cluster share: sqlite:PATH, a file on "
        "their one machine, or zookeeper://HOST:PORT,HOST:PORT,HOST:PORT/PATH",
    )
    parser.add_argument(
        "--internal",
        type=_address,
        metavar="HOST:PORT",
        help="address for the other brokers of the cluster (default: host of --listen, any free port)",
    )


def options_from(arguments: argparse.Namespace) -> ServeOptions:
    """The flags as a value; UsageError for what must not be served."""
    given = {name: value for name, value in vars(arguments).items() if name in ServeOptions.__struct_fields__}
    if "settings" in given:
        given["settings"] = tuple(given["settings"])
    options = ServeOptions(**given, given=frozenset(given))
    if refusal := options.refusal():
        raise UsageError(refusal.message)
    return options


def run(arguments: argparse.Namespace) -> int:
    options = options_from(arguments)
    from cairnmq.broker import server

    return server.run(options) or 0


def _logging(name: str, known: Sequence[str], text: str) -> tuple[str, str]:
    """A flag for a setting."""
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(known)}")
    return f"cairn.log.{name}", text


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
