"""Fetch sessions: ids and epochs, what stays and what goes, turns, and who makes room."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cairnmq.broker.requests.fetch_sessions import EPOCH_MAX, FetchSessions, Plan
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import FetchRequest, FetchResponse

BY_NAME, BY_ID = 12, 13
SLOTS = 2


class Desk:
    """Sessions with ids 1, 2, ... and a clock."""

    def __init__(self, ids: Any = None) -> None:
        self.sessions = FetchSessions((ids or itertools.count(1)).__next__)
        self.now_ms = 0

    def ask(
        self, session_id: int, epoch: int, partitions: dict[int, int] | None = None, version: int = BY_NAME, **more: Any
    ) -> Plan | ErrorCode:
        asked = [FetchRequest.FetchPartition(partition=p, fetch_offset=o) for p, o in (partitions or {}).items()]
        topics = [FetchRequest.FetchTopic(topic="t", partitions=asked)] if asked else []
        request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **more)
        return self.sessions.plan(request, version, SLOTS, self.now_ms)

    def plan(self, *words: Any, **more: Any) -> Plan:
        found = self.ask(*words, **more)
        assert isinstance(found, Plan), found
        return found


def wanted(plan: Plan) -> dict[int, int]:
    return {each.partition: each.fetch_offset for each in plan.asked}


def test_a_session_remembers_what_later_requests_leave_out() -> None:
    desk = Desk()
    first = desk.plan(0, 0, {0: 10, 1: 20, 2: 30})
    assert (first.session_id, first.incremental) == (1, False)
    assert wanted(desk.plan(1, 1)) == {0: 10, 1: 20, 2: 30}
    second = desk.plan(1, 2, {1: 25, 3: 0})
    assert second.incremental and wanted(second) == {0: 10, 1: 25, 2: 30, 3: 0}
    gone = [FetchRequest.ForgottenTopic(topic="t", partitions=[0, 7])]
    assert wanted(desk.plan(1, 3, forgotten_topics_data=gone)) == {1: 25, 2: 30, 3: 0}


def test_epochs_count_up_and_wrap_to_1() -> None:
    desk = Desk()
    session = desk.plan(0, 0, {0: 0}).session
    assert session is not None
    assert desk.ask(1, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    desk.plan(1, 1)
    assert desk.ask(1, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a repeated request would miss data"
    session.epoch = EPOCH_MAX
    desk.plan(1, EPOCH_MAX)
    desk.plan(1, 1)


def test_unknown_and_closed_sessions() -> None:
    desk = Desk()
    assert desk.ask(5, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    desk.plan(0, 0, {0: 0})
    last = desk.plan(1, -1, {0: 0})
    assert (last.session_id, wanted(last), desk.sessions.sessions) == (0, {0: 0}, {})
    assert desk.ask(1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_full_fetch_replaces_the_session_it_names() -> None:
    desk = Desk()
    desk.plan(0, 0, {0: 0})
    assert desk.plan(1, 0, {0: 0}).session_id == 2
    assert list(desk.sessions.sessions) == [2]


def test_names_and_ids_do_not_mix() -> None:
    desk = Desk()
    desk.plan(0, 0, {0: 0})
    assert desk.ask(1, 1, version=BY_ID) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("version", [4, 6])
def test_versions_before_sessions(version: int) -> None:
    desk = Desk()
    assert desk.plan(0, -1, {0: 0}, version=version).session_id == 0
    assert desk.sessions.sessions == {}


def test_ids_are_never_0_nor_used_twice() -> None:
    desk = Desk(iter([0, -5, 7, 7, 9]))
    assert desk.plan(0, 0, {0: 0}).session_id == 7
    assert desk.plan(0, 0, {0: 0}).session_id == 9


def test_only_a_session_that_rests_makes_room() -> None:
    desk = Desk()
    desk.plan(0, 0, {0: 0})
    desk.now_ms = 1000
    desk.plan(0, 0, {0: 0})
    assert desk.plan(0, 0, {0: 0}).session_id == 0, "no slot is no error: the fetch is answered in full each time"
    desk.now_ms = FetchSessions.EVICT_MS
    assert desk.plan(0, 0, {0: 0}).session_id == 3
    assert sorted(desk.sessions.sessions) == [2, 3]
    desk.plan(2, 1)
    desk.now_ms += FetchSessions.EVICT_MS - 1
    assert desk.plan(0, 0, {0: 0}).session_id == 0, "both were used meanwhile"


def test_partitions_of_all_sessions_are_bounded() -> None:
    desk = Desk()
    desk.sessions.partitions_max = 3
    assert desk.plan(0, 0, {0: 0, 1: 0}).session_id == 1
    assert desk.plan(0, 0, {0: 0, 1: 0}).session_id == 0, "no room is no error: the fetch is answered in full"
    assert desk.plan(1, 1, {2: 0}).session_id == 1
    assert desk.ask(1, 2, {3: 0}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "then the client begins again"
    assert desk.sessions.partitions == 0
    assert desk.plan(0, 0, {0: 0, 1: 0, 2: 0, 3: 0}).session_id == 0
    assert desk.plan(0, 0, {0: 0, 1: 0, 2: 0}).session_id == 2
    desk.now_ms = FetchSessions.EVICT_MS
    assert desk.plan(0, 0, {0: 0}).session_id == 3, "one that rests makes room"
    assert desk.sessions.partitions == 1


def test_who_gave_data_waits_for_the_others() -> None:
    desk = Desk()
    plan = desk.plan(0, 0, {0: 0, 1: 0, 2: 0})
    assert plan.session is not None
    plan.session.rotate(plan.wanted[0])
    assert [each.partition for each in desk.plan(1, 1).asked] == [1, 2, 0]


def test_an_incremental_answer_leaves_out_what_the_client_knows() -> None:
    desk = Desk()
    row = FetchResponse.PartitionData
    plan = desk.plan(0, 0, {0: 0})
    quiet = row(high_watermark=5, log_start_offset=1)
    assert not plan.leaves_out(plan.wanted[0], quiet), "a full answer names everything"
    plan = desk.plan(1, 1)
    (one,) = plan.wanted
    assert plan.leaves_out(one, quiet)
    assert not plan.leaves_out(one, row(high_watermark=6, log_start_offset=1))
    assert not plan.leaves_out(one, row(high_watermark=6, log_start_offset=2))
    assert plan.leaves_out(one, row(high_watermark=6, log_start_offset=2))
    assert not plan.leaves_out(one, row(high_watermark=6, log_start_offset=2, records=b"data"))
    wrong = row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not plan.leaves_out(one, wrong) and not plan.leaves_out(one, wrong), "an error is told each time"
    assert not plan.leaves_out(one, row(high_watermark=6, log_start_offset=2)), "and so is its end"
    apart = row(
        high_watermark=6, log_start_offset=2, diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=3)
    )
    assert not plan.leaves_out(one, apart) and not plan.leaves_out(one, apart), "a diverging epoch too"
