"""Who leads what: what handlers are told as shells tell it. And no handler looks up queues past the guard."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.broker.leadership import UNKNOWN, JournalView, KnownBroker, Leadership, NoElections, NotLeader
from cairnmq.errors import ErrorCode

OWN, OTHER = KnownBroker(1, "a", 9092, "r"), KnownBroker(2, "b", 9093)
BROKER = Path(__file__).parents[3] / "src" / "cairnmq" / "broker"


def test_one_node_leads_all_its_journals() -> None:
    alone = Leadership.alone(OWN, (0, 7), {0: 3, 7: 4})
    assert not alone.is_cluster and (alone.brokers, alone.controller) == ((OWN,), 1)
    assert alone.led == {0: 3, 7: 4}
    for journal, epoch in ((0, 3), (7, 4)):
        assert alone.view(journal) == JournalView(1, epoch, (1,), (1,), ())
        assert alone.refusal(journal) is None and alone.is_ready(journal)
        assert alone.in_sync(journal) == 1 and alone.may_answer_alone(journal)


def test_what_is_not_led_here_names_the_leader() -> None:
    leadership = Leadership(1)
    assert leadership.refusal(0) == NotLeader(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, "journal 0 has no leader at the moment", -1, -1
    )
    leadership.know(0, JournalView(2, 5, (1, 2), (2,)))
    refusal = leadership.refusal(0)
    assert refusal is not None and (refusal.leader, refusal.epoch) == (2, 5)
    assert refusal.message == "broker 2 leads journal 0"
    leadership.know(0, JournalView(1, 6, (1, 2), (2, 1)))
    refusal = leadership.refusal(0)
    assert refusal is not None and "broker 1 was elected" in refusal.message
    assert not leadership.is_ready(0) and not leadership.may_answer_alone(0)


def test_a_leader_that_hands_over_acknowledges_nothing_alone() -> None:
    leadership = Leadership(1)
    for journal, in_sync in ((4, (2, 1)), (5, (1,))):
        leadership.know(journal, JournalView(1, 6, (1, 2), in_sync))
        leadership.lead(journal, 6, lambda: True)
        assert leadership.may_acknowledge_alone(journal)
    leadership.is_leaving = True
    assert not leadership.may_acknowledge_alone(4) and leadership.may_answer_alone(4)
    assert leadership.may_acknowledge_alone(5), "nobody else can lead it"
    leadership.lost(5)
    assert not leadership.may_acknowledge_alone(5)


def test_clients_are_told_a_controller_while_there_is_none() -> None:
    """Any broker serves what they send there; told of none, librdkafka waits for minutes."""
    leadership = Leadership(1)
    assert leadership.told_controller == -1, "nobody is known yet"
    for brokers, controller, told in (([OWN, OTHER], 2, 2), ([OWN, OTHER], -1, 1), ([OWN], 2, 1), ([OTHER], -1, 2)):
        leadership.know_brokers(brokers, controller)
        assert (leadership.told_controller, leadership.controller) == (told, controller)


def test_the_term_of_a_leader() -> None:
    leadership, holds, woken = Leadership(1), [True], list[int]()
    leadership.on_lost.add(lambda: woken.append(1))
    leadership.know(4, JournalView(1, 6, (1, 2), (2, 1)))
    before = leadership.terms
    leadership.lead(4, 6, lambda: holds[0])
    assert leadership.refusal(4) is None and leadership.led == {4: 6} and leadership.terms > before
    assert not leadership.is_ready(4) and leadership.in_sync(4) == 2
    leadership.ready(4)
    assert leadership.is_ready(4) and leadership.may_answer_alone(4)
    holds[0] = False
    assert not leadership.may_answer_alone(4)
    led, woken_before = leadership.terms, list(woken)
    leadership.lost(4)
    assert not woken_before and woken == [1]
    assert leadership.terms > led and leadership.refusal(4) is not None
    assert not leadership.is_ready(4) and not leadership.may_answer_alone(4)
    leadership.lost(4)
    assert woken == [1], "it was lost already"
    leadership.lead(4, 8)
    assert not leadership.is_ready(4), "a new term begins anew"


def test_who_waits_may_leave_while_all_are_woken() -> None:
    leadership = Leadership(1)

    def leave() -> None:
        leadership.on_lost.discard(leave)

    leadership.on_lost.add(leave)
    leadership.lead(0, 1)
    leadership.lost(0)
    assert not leadership.on_lost


def test_versions_grow_with_what_clients_are_told() -> None:
    leadership = Leadership(1)
    seen = []

    def changed() -> tuple[bool, bool]:
        seen.append((leadership.version, leadership.isr_version))
        (version, isr), (now, isr_now) = seen[-2:] if len(seen) > 1 else [(0, 0), seen[-1]]
        return now > version, isr_now > isr

    leadership.know_brokers([OTHER, OWN], 2)
    assert changed() == (True, False) and leadership.brokers == (OWN, OTHER)
    assert leadership.broker(2) == OTHER and leadership.broker(3) is None
    leadership.know_brokers([OWN, OTHER], 2)
    assert changed() == (False, False)
    leadership.know_brokers([OWN, OTHER], 1)
    assert changed() == (True, False)
    for departed, is_news in (((OTHER,), True), ((OTHER,), False), ((), True)):
        leadership.know_departed(departed)
        assert changed() == (is_news, False) and leadership.departed == departed
    leadership.know(0, JournalView(1, 1, (1, 2), (1, 2)))
    assert changed() == (True, False)
    leadership.know(0, JournalView(1, 1, (1, 2), (1,)))
    assert changed() == (False, True) and leadership.in_sync(0) == 1, "at once for min.insync.replicas"
    leadership.know(0, JournalView(1, 1, (1, 2), (1,), (2,)))
    assert changed() == (True, False)
    leadership.know(0, JournalView(2, 2, (1, 2), (1,), (2,)))
    assert changed() == (True, False)
    assert leadership.view(1) is UNKNOWN


def test_one_node_elects_nobody() -> None:
    elections = NoElections(1)
    for asked in (elections.preferred(0), elections.unclean(0)):
        refusal = asyncio.run(asked)
        assert refusal is not None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED


def lookups(tree: ast.AST) -> Iterator[int]:
    """Lines that take queues from storage: `.queues` of anything called store or engine, whatever it is called later,
    or by getattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "queues":
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.strip("_") in ("store", "engine"):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars"):
            yield node.lineno


@pytest.mark.parametrize(
    "line",
    ["ctx.store.queues.get(1)", "queues = self.ctx.store.queues", "engine.queues[1]", "getattr(ctx.store, 'queues')"],
)
def test_the_search_for_lookups_finds(line: str) -> None:
    assert list(lookups(ast.parse(line))) == [1]


def test_no_handler_looks_up_queues_past_the_guard() -> None:
    """`requests/queue_lookup.py` asks whether this broker leads. A handler that forgets to ask would serve a follower's
    records, or stage into a journal of another leader."""
    modules = [*(BROKER / "handlers").glob("*.py"), *(BROKER / "requests").glob("*.py")]
    assert len(modules) > 40
    found = {
        f"{module.parent.name}/{module.name}": lines
        for module in modules
        if module.name != "queue_lookup.py" and (lines := list(lookups(ast.parse(module.read_text()))))
    }
    assert not found


def test_what_takes_queues_but_does_not_serve_them() -> None:
    """The doors beside the guard, and who may use them: for staleness, and for what lies on this broker's disk."""
    users: dict[str, set[str]] = {"live_queues": set(), "hosted_queues": set()}
    for module in (BROKER / "handlers").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Name) and node.id in users:
                users[node.id].add(module.stem)
    assert users == {"live_queues": {"fetch", "produce"}, "hosted_queues": {"log_dirs"}}


def test_a_journal_is_marked_before_it_acknowledges_what_is_not_synced() -> None:
    leadership = Leadership(1)
    leadership.know(0, JournalView(1, 1, (1, 2), (1, 2)))
    leadership.know(1, JournalView(1, 1, (1,), (1,)))
    assert leadership.admits_unsynced(1) and not leadership.weak_wanted, "one replica: nobody else could lead"
    assert not leadership.admits_unsynced(0) and leadership.weak_wanted == {0}
    leadership.know(0, JournalView(1, 1, (1, 2), (1, 2), is_weak=True))
    assert leadership.admits_unsynced(0)
    assert Leadership.alone(OWN, (0,), {0: 1}).admits_unsynced(0)
