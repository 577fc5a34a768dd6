"""`cairn txn`: list, describe, abort."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import add_connection, add_json, completes, connect, examples, one_of, utf8
from cairnmq.cli.terminal import error, note, write_json, write_line, write_table
from cairnmq.cli.topic_choice import natural_order
from cairnmq.transactions.record import State

if TYPE_CHECKING:
    from cairnmq.client.transactions import TransactionDescription

STATES = tuple(state.value for state in State)
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows transactions, and aborts those that a dead producer left open."
    examples(parser, "cairn txn list --open", "cairn txn describe payments-1", "cairn txn abort payments-1")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list transactional ids", description="Lists transactional ids.")
    wanted = listing.add_mutually_exclusive_group()
    wanted.add_argument(
        "--state",
        dest="states",
        action="append",
        type=one_of(STATES, "state"),
        default=[],
        metavar="STATE",
        help=f"only transactions in this state: {', '.join(STATES)}; repeatable",
    )
    wanted.add_argument(
        "--open", dest="states", action="store_const", const=list(OPEN_STATES), help="only open transactions"
    )
    add_json(listing)
    examples(listing, "cairn txn list", "cairn txn list --open", "cairn txn list --state Ongoing --json")
    listing.set_defaults(run=run_list)

    describe = actions.add_parser(
        "describe",
        help="state, producer and partitions of transactional ids",
        description="Shows the state, the producer and the partitions of transactional ids.",
    )
    completes("transactions", describe.add_argument("ids", nargs="+", type=utf8, metavar="ID"))
    add_json(describe)
    examples(describe, "cairn txn describe payments-1")
    describe.set_defaults(run=run_describe)

    abort = actions.add_parser(
        "abort",
        help="abort open transactions and fence their producers",
        description="Aborts the open transaction of each transactional id. Its producer, if it still runs, is "
        "fenced: it cannot send or commit until it is restarted.",
    )
    completes("transactions", abort.add_argument("ids", nargs="+", type=utf8, metavar="ID"))
    examples(abort, "cairn txn abort payments-1")
    abort.set_defaults(run=run_abort)

    for action in (listing, describe, abort):
        add_connection(action)


def run_list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.list_transactions(arguments.states)
    found.sort(key=lambda one: natural_order(one.transactional_id))
    if arguments.json:
        write_json(found)
    elif found:
        rows = [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found]
        write_table(("ID", "STATE", "PRODUCER", "COORDINATOR"), rows)
    else:
        note("no such transactions" if arguments.states else "no transactions")
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        described = [client.describe_transaction(each) for each in arguments.ids]
    if arguments.json:
        write_json([_as_json(each) for each in described])
        return 0
    for number, each in enumerate(described):
        if number:
            write_line("")
        _write(each, time.time())
    return 0


def run_abort(arguments: argparse.Namespace) -> int:
    from cairnmq.client.errors import Refused

    failed = False
    with connect(arguments) as client:
        for each in arguments.ids:
            try:
                found = client.describe_transaction(each)
            except Refused as refused:
                error(str(refused))
                failed = True
                continue
            if found.state not in OPEN_STATES:
                error(f"transactional id {each} has no open transaction (state {found.state})")
                failed = True
                continue
            client.begin_transactions(each, found.timeout_ms)  # taking the id over aborts what was left open
            note(f"aborted {each}")
    return 1 if failed else 0


def _write(found: TransactionDescription, now: float) -> None:
    write_line(f"id           {found.transaction.transactional_id}")
    write_line(f"state        {found.state}")
    write_line(f"coordinator  {found.coordinator}")
    write_line(f"producer     {found.transaction.producer_id}, epoch {found.transaction.epoch}")
    write_line(f"timeout      {found.timeout_ms / 1000:g} s")
    if found.start_ms > 0:
        write_line(f"open for     {max(0.0, now - found.start_ms / 1000):.1f} s")
    if found.partitions:
        write_line("")
        write_table(("TOPIC", "PARTITION"), [(place.topic, place.partition) for place in found.partitions])


def _as_json(found: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": found.transaction.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.transaction.producer_id,
        "producer_epoch": found.transaction.epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms if found.start_ms > 0 else None,
        "partitions": [{"topic": place.topic, "partition": place.partition} for place in found.partitions],
    }
