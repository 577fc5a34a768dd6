"""What the replication core says comes out on the other side as it went in."""

from __future__ import annotations

import typing

import pytest

from cairnmq.broker.internal.journal_messages import ask_of, position_of, reply_of, told_of
from cairnmq.replication.history import EpochEnd
from cairnmq.replication.messages import (
    Accepted,
    Diverging,
    FencedEpoch,
    FetchPosition,
    FetchReply,
    Gone,
    Room,
    StaleBroker,
    UnknownEpoch,
)
from cairnmq.replication.records import Member
from cairnmq.wire.internal import NotLeader, ReplicaFetch, ReplicaFetched, Told, decode, encode

REPLIES: list[FetchReply | NotLeader] = [
    Accepted(10, 9, True, 8, 7),
    Diverging(EpochEnd(7, 6)),
    Gone(5),
    FencedEpoch(4),
    UnknownEpoch(),
    StaleBroker(),
    NotLeader(3),
]


def test_a_position() -> None:
    room = Room(checkpointed=12, backlog_percent=13, free_bytes=11, backlog_bytes=10)
    position = FetchPosition(
        Member(2, 22), epoch=3, end=4, last_epoch=5, synced=6, echo_ms=7, room=room, has_readers=True
    )
    sent = decode(ReplicaFetch, encode(ReplicaFetch(1, 2, [ask_of(9, position)])))
    (ask,) = sent.journals
    assert (ask.journal, ask.split_backlog_bytes, ask.free_bytes) == (9, 10, 11)
    assert position_of(ask) == position


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_reply(reply: FetchReply | NotLeader) -> None:
    sent = decode(ReplicaFetched, encode(ReplicaFetched([told_of(9, reply, 100)])))
    (told,) = sent.journals
    assert (told.journal, told.size) == (9, 100)
    assert reply_of(told) == reply
    assert type(reply_of(told)) is type(reply)


def test_every_reply_is_tried() -> None:
    assert {type(reply) for reply in REPLIES} == {*typing.get_args(FetchReply), NotLeader}
    assert {type(told_of(0, reply).reply) for reply in REPLIES} == {*typing.get_args(Told)}
