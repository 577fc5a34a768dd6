"""`cairn cluster brokers` and `journals`: who leads what, who follows, and how far each replica is."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import connect
from cairnmq.cli.terminal import DIM, error, or_dash, paint, size_text, write_json, write_line, write_table
from cairnmq.types import host_port

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.cluster_report import BrokerRow, ClusterReport, JournalRow


def find_report(client: Client, *, alone: bool = False) -> ClusterReport | None:
    """What all live brokers tell; None if they are of another make, and without `alone` if there is one broker."""
    from cairnmq.client.cluster_answers import ask_brokers
    from cairnmq.client.cluster_report import merge

    answers = client.run(ask_brokers(client.session))
    if not answers.told:
        return None
    report = merge(answers.told, answers.silent)
    return report if alone or len(report.brokers) > 1 else None


def need_report(client: Client) -> ClusterReport:
    from cairnmq.client.errors import ClientError

    report = find_report(client, alone=True)
    if report is None:
        raise ClientError("no broker told about journals: this takes brokers of CairnMQ, of this version or later")
    return report


def run_brokers(arguments: argparse.Namespace) -> int:
    with connect(arguments, patient=False) as client:
        report = need_report(client)
    if arguments.json:
        write_json(report.brokers)
    else:
        write_brokers(report)
    return 0


def write_brokers(report: ClusterReport) -> None:
    headings = ("BROKER", "STATE", "ADDRESS", "RACK", "LEADS", "HOSTS", "IN-SYNC", "SEEN", "CONTROLLER")
    write_table(headings, [_broker(row) for row in report.brokers])


def _broker(row: BrokerRow) -> tuple[object, ...]:
    seen = "-" if row.session_age_ms is None else f"{row.session_age_ms / 1000:.1f} s ago"
    address = "-" if row.address is None else host_port(row.address.host, row.address.port)
    rack = "-" if row.address is None or row.address.rack is None else row.address.rack
    controller = "yes" if row.controller else "-"
    return row.broker, row.state, address, rack, row.leads, row.hosts, row.in_sync, seen, controller


def run_journals(arguments: argparse.Namespace) -> int:
    with connect(arguments, patient=False) as client:
        report = need_report(client)
    wanted = set(arguments.journals)
    rows = [row for row in report.journals if not wanted or row.journal in wanted]
    if missing := sorted(wanted - {row.journal for row in rows}):
        error(_no_such(missing, report))
    if arguments.json:
        write_json(rows)
    elif rows:
        write_table(
            ("JOURNAL", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC", "END", "UNREPLICATED", "UNSPLIT", "BEHIND"),
            [_journal(row) for row in rows],
        )
    elif not wanted:
        write_line(paint("there are no journals", DIM, sys.stdout))
    return 1 if missing else 0


def _no_such(journals: list[int], report: ClusterReport) -> str:
    from cairnmq.client.cluster_report import names

    known = [row.journal for row in report.journals]
    there = (
        f"there {'is' if len(known) == 1 else 'are'} {names('journal', known)}" if known else "there are no journals"
    )
    return f"{names('journal', journals)} {'does' if len(journals) == 1 else 'do'} not exist; {there}"


def _journal(row: JournalRow) -> tuple[object, ...]:
    leader = "none" if row.leader < 0 else str(row.leader) if row.ready else f"{row.leader} (waits)"
    replicas = ",".join(str(each.broker) for each in row.replicas)
    in_sync = ",".join(str(each.broker) for each in row.replicas if each.in_sync)
    above = None if row.end is None or row.replicated is None else max(0, row.end - row.replicated)
    end, unsplit = or_dash(row.end), size_text(row.unsplit)
    return row.journal, leader, row.epoch, replicas, in_sync or "-", end, size_text(above), unsplit, _behind(row)


def _behind(row: JournalRow) -> str:
    """Replicas out of sync, and those that lack something: `2: 4.0 MiB, 3.2 s`."""
    said = []
    for each in row.replicas:
        if not each.live:
            said.append(f"{each.broker}: down")
        elif each.lag_bytes:
            age = "" if each.lag_ms is None else f", {each.lag_ms / 1000:.1f} s"
            said.append(f"{each.broker}: {size_text(each.lag_bytes)}{age}")
        elif not each.in_sync:
            said.append(f"{each.broker}: not in sync")
    return "; ".join(said) or "-"
