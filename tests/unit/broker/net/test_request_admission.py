"""Order, limits and memory: which request may start, and what it waits for."""

from __future__ import annotations

import time
from typing import Any

from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.pending_request import PendingRequest
from cairnmq.broker.net.request_admission import Admission, Verdict
from cairnmq.broker.net.response_queue import ResponseQueue
from cairnmq.storage.files.buffers import LARGE, SMALL
from cairnmq.wire.apis import FETCH, HEARTBEAT, PRODUCE

PLENTY = 1 << 30


class Desk:
    """An admission with its budgets and a queue of responses; started requests are pending until they are released."""

    def __init__(
        self, limits: Limits | None = None, *, requests: int = PLENTY, objects: int = PLENTY, responses: int = PLENTY
    ) -> None:
        self.requests, self.objects, self.responses = Budget(requests), Budget(objects), Budget(responses)
        self.queue = ResponseQueue(Metrics(time.perf_counter), self.responses)
        self.admission = Admission(limits or Limits(), self.requests, self.objects, self.responses)

    def ask(self, key: int, size: int = 100, objects: int = 0) -> Verdict:
        verdict = self.admission.admit(key, size, objects, self.queue)
        if verdict is Verdict.START:
            nobody: Any = None
            self.queue.add(PendingRequest(nobody, key, 0, 0, size, objects, time.perf_counter()))
        return verdict

    def respond(self) -> None:
        request = self.queue.pending.pop(0)
        self.queue.pending_bytes -= request.size
        self.admission.release(request)


def test_only_produce_overtakes_pending_responses() -> None:
    desk = Desk()
    assert [desk.ask(PRODUCE), desk.ask(PRODUCE), desk.ask(FETCH)] == [Verdict.START, Verdict.START, Verdict.RESPONSES]
    desk.respond()
    desk.respond()
    assert [desk.ask(FETCH), desk.ask(PRODUCE)] == [Verdict.START, Verdict.RESPONSES]


def test_nothing_starts_while_responses_are_not_taken() -> None:
    desk = Desk()
    desk.queue.write_paused = True
    assert desk.ask(HEARTBEAT) is Verdict.RESPONSES


def test_limits_of_a_connection() -> None:
    for limits in (Limits(requests=2), Limits(outstanding_bytes=150)):
        desk = Desk(limits)
        assert [desk.ask(PRODUCE) for _ in range(3)] == [Verdict.START, Verdict.START, Verdict.RESPONSES]


def test_turn_ends_when_enough_is_started() -> None:
    desk = Desk(Limits(turn_bytes=5000))
    assert [desk.ask(PRODUCE), desk.ask(PRODUCE), desk.ask(PRODUCE)] == [Verdict.START, Verdict.START, Verdict.TURN]
    desk.admission.turn_bytes = 0
    assert desk.ask(PRODUCE) is Verdict.START


def test_each_kind_of_memory_wakes_its_own() -> None:
    for kind, key, objects in (("requests", PRODUCE, 0), ("objects", FETCH, 100_000), ("responses", FETCH, 0)):
        desk = Desk(**{kind: 1})
        budget: Budget = getattr(desk, kind)
        budget.take(1)
        woken: list[int] = []
        assert desk.ask(key, 100_000, objects) is Verdict.MEMORY
        for _ in range(2):  # is registered once
            desk.admission.wait(lambda: woken.append(1))  # noqa: B023
        assert budget.wanted and desk.admission.is_waiting
        budget.release(1)
        assert woken == [1]


def test_responses_that_are_small_do_not_wait_for_memory() -> None:
    desk = Desk(responses=1)
    desk.responses.take(1)
    assert desk.ask(HEARTBEAT) is Verdict.START and desk.admission.others_want_responses is False


def test_memory_comes_back() -> None:
    desk = Desk()
    desk.ask(FETCH, 10_000, 240_000)
    assert (desk.requests.used, desk.objects.used) == (10_000, 240_000)
    (request,) = desk.queue.pending
    desk.admission.release_objects(request, 180_000)
    assert desk.objects.used == 60_000
    desk.admission.release(request)
    desk.admission.release(request)
    assert (desk.requests.used, desk.objects.used) == (0, 0)


def test_small_part_pays_for_its_chunk() -> None:
    desk = Desk()
    assert desk.admission.admit_part(10_000, 200) and desk.requests.used == 0
    assert desk.admission.admit_part(10_000, 300) and desk.requests.used == SMALL
    assert desk.ask(PRODUCE, 10_000) is Verdict.START
    assert desk.requests.used == 10_000 and desk.admission.reserved == 0


def test_large_part_pays_as_it_arrives() -> None:
    desk = Desk()
    size, available, steps = 10 * LARGE, 100, set[int]()
    while available < size:
        assert desk.admission.admit_part(size, available)
        assert available <= desk.admission.reserved <= min(size, available + LARGE)
        steps.add(desk.admission.reserved)
        available += LARGE // 4
    assert desk.admission.part == 1 and len(steps) > 10


def test_lost_connection_gives_its_part_back() -> None:
    """And waits no longer for the rest."""
    desk = Desk(requests=1000)
    assert desk.admission.admit_part(4 << 20, 100)
    other = object()
    assert desk.requests.reserve_more(10, other), "one may have more than there is"
    assert not desk.admission.admit_part(4 << 20, SMALL)
    desk.admission.wait(print)
    assert desk.requests.wanted
    desk.admission.close(print)
    assert desk.requests.used == 10 and not desk.requests.wanted and not desk.admission.is_waiting


def test_part_that_others_want() -> None:
    desk = Desk(requests=1000)
    desk.admission.admit_part(1 << 20, 100)
    assert not desk.admission.holds_what_others_want
    desk.requests.wait(print)
    assert desk.admission.holds_what_others_want
