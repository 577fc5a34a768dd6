"""`cairn serve`: reads the flags into ServeOptions and hands over to the broker, which is imported only then."""

from __future__ import annotations

import argparse

from cairnmq.broker.options import Address, ServeOptions, parse_address
from cairnmq.cli.arguments import natural, setting
from cairnmq.cli.terminal import UsageError

_DEFAULTS = ServeOptions()


def configure(parser: argparse.ArgumentParser) -> None:
    defaults = _DEFAULTS
    parser.argument_default = argparse.SUPPRESS  # a flag that was not given leaves no trace, so settings may fill it
    parser.add_argument("--data", metavar="DIR", help=f"data directory (default {defaults.data})")
    parser.add_argument(
        "--journal-dir", metavar="DIR", help="journals elsewhere, best on a disk of their own (default DIR/journal)"
    )
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help=f"where clients connect (default {defaults.listen}; port 0: any free one)",
    )
    parser.add_argument(
        "--advertise",
        type=_address,
        metavar="HOST:PORT",
        help="what clients are told to connect to (default: --listen)",
    )
    http = parser.add_mutually_exclusive_group()
    http.add_argument(
        "--http", type=_address, metavar="HOST:PORT", help=f"status page, health, metrics (default {defaults.http})"
    )
    http.add_argument("--no-http", dest="http", action="store_const", const=None, help="no status page")
    parser.add_argument(
        "--insecure", action="store_true", help="allow addresses that other machines can reach, without authentication"
    )
    parser.add_argument(
        "--node-id", type=natural, metavar="N", help=f"this broker's number (default {defaults.node_id})"
    )
    parser.add_argument("--rack", metavar="R", help="where this broker stands")
    parser.add_argument("--metadata", metavar="STORE", help="sqlite (default), or zookeeper://h:p,h:p/chroot")
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file or a Kafka server.properties")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=setting,
        metavar="NAME=VALUE",
        help="one setting, Kafka's names; repeatable",
    )
    parser.add_argument("--ready-file", metavar="PATH", help="write a JSON file when requests are accepted")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on with what is left when a disk was lost; without it the start only says what is gone",
    )
    parser.set_defaults(run=run)


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


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
