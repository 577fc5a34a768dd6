"""Both kinds of group are what `Group` says."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.deadlines import Deadlines
from cairnmq.groups.group import Group
from cairnmq.groups.messages import Limits, State
from cairnmq.groups.offset_messages import OffsetCommit


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
def test_a_new_group_is_empty(kind: type[ClassicGroup] | type[ConsumerGroup]) -> None:
    group: Group = kind("g", Limits(), Deadlines())
    assert [name for name in vars(Group) if not name.startswith("_") and not hasattr(group, name)] == []
    assert group.state is State.EMPTY and not group.members and not group.pending
    assert group.commit_error(OffsetCommit("g", "", None, -1), 0) == ErrorCode.NONE
    assert [group.describe() is None, group.describe_consumers() is None].count(True) == 1
