"""`cairn cluster elect`: leadership back to the preferred brokers; with --unclean a leader that may lack records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cairnmq.cli.arguments import connect
from cairnmq.cli.cluster_tables import need_report
from cairnmq.cli.terminal import agreed, error, note, write_json

if TYPE_CHECKING:
    from cairnmq.client.blocking import Client
    from cairnmq.client.cluster_report import ClusterReport, JournalRow, ReachRow


def run_elect(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        if arguments.unclean:
            return _elect_unclean(client, sorted(set(arguments.unclean)), arguments)
        return _elect_preferred(client, as_json=arguments.json)


def _elect_preferred(client: Client, *, as_json: bool) -> int:
    from cairnmq.client.admin import elect_preferred_leaders

    outcomes = client.run(elect_preferred_leaders(client.session, int(client.timeout * 1000)))
    refused = {place: outcome for place, outcome in outcomes.items() if outcome is not None}
    if as_json:
        elected = [str(place) for place in outcomes if place not in refused]
        write_json({"elected": elected, "refused": {str(place): str(why) for place, why in refused.items()}})
        return 1 if refused else 0
    note(f"partitions whose leader changed to the preferred broker: {len(outcomes) - len(refused):,}")
    for sentence in sorted({str(outcome) for outcome in refused.values()}):
        error(sentence)
    return 1 if refused else 0


def _elect_unclean(client: Client, journals: Sequence[int], arguments: argparse.Namespace) -> int:
    from cairnmq.client.cluster import elect_unclean

    report = need_report(client)
    if reasons := [reason for number in journals if (reason := why_not(report, number))]:
        for reason in reasons:
            error(reason)
        return 1
    for row in report.journals:
        if row.journal in journals:
            for line in what_may_be_lost(report, row):
                note(line)
    again = " ".join(f"--unclean {number}" for number in journals)
    if not arguments.yes and not agreed(f"`cairn cluster elect {again} --yes`"):
        return 1
    return _tell(client.run(elect_unclean(client.session, journals, int(client.timeout * 1000))), arguments.json)


def _tell(outcomes: Mapping[int, Exception | None], as_json: bool) -> int:
    if as_json:
        write_json({number: None if refused is None else str(refused) for number, refused in outcomes.items()})
    else:
        for number, refused in outcomes.items():
            if refused is None:
                note(f"journal {number} has a leader")
            else:
                error(str(refused))
    return 1 if any(outcomes.values()) else 0


def why_not(report: ClusterReport, number: int) -> str | None:
    """Why an unclean election of a journal makes no sense, as far as the brokers tell."""
    row = next((each for each in report.journals if each.journal == number), None)
    if row is None:
        return f"journal {number} does not exist"
    if row.leader >= 0:
        return f"journal {number} has a leader: broker {row.leader}"
    if not any(replica.live for replica in row.replicas):
        return f"no replica of journal {number} is up; start one of its brokers first"
    return None


def what_may_be_lost(report: ClusterReport, row: JournalRow) -> list[str]:
    from cairnmq.client.cluster_report import names

    up = [replica.broker for replica in row.replicas if replica.live]
    down = [replica.broker for replica in row.replicas if not replica.live]
    lines = _who_would_lead(row) or [f"journal {row.journal} would be led by one of: {names('broker', up)}."]
    if any(replica.in_sync for replica in row.replicas):
        lines.append("  An in-sync replica is up: wait, it will be elected by itself and nothing is lost.")
    if down:
        have = "has" if len(down) == 1 else "have"
        lines.append(f"  Records that only {names('broker', down)} {have} are lost, also acknowledged ones,")
        lines.append("  and offsets may be given to other records. What the returning broker has more is deleted.")
    else:
        lines.append("  Records that the new leader does not have are lost, also acknowledged ones.")
    return lines


def _who_would_lead(row: JournalRow) -> list[str]:
    """And how far each live replica reaches. Nothing if none has told."""
    winner = next((each for each in row.reaches if each.broker == row.unclean_winner), None)
    if winner is None or winner.end is None:
        return []
    lines = [f"journal {row.journal} would be led by broker {winner.broker}, which {_reaches(winner)}."]
    return lines + [f"  broker {each.broker} {_reaches(each)}." for each in row.reaches if each is not winner]


def _reaches(row: ReachRow) -> str:
    if row.end is None:
        return "has not told how far it reaches"
    lost = "has lost bytes and " if row.damaged else ""
    return f"{lost}reaches position {row.end:,} (epoch {row.last_epoch})"
