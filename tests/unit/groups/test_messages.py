"""Limits of groups."""

from __future__ import annotations

from cairnmq.errors import ErrorCode
from cairnmq.groups.messages import Limits


def test_a_known_group_needs_no_room() -> None:
    limits = Limits(groups_max=2)
    assert limits.room_error("new", {"a"}, {"a"}) == ErrorCode.POLICY_VIOLATION, "one of two kinds counts twice"
    assert limits.room_error("a", {"a"}, {"b"}) == ErrorCode.NONE
    assert limits.room_error("new", {"a"}, set()) == ErrorCode.NONE
