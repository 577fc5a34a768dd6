"""What a journal says to whoever would write to it here, while another broker leads it. The last line of defence:
whoever takes requests asks who leads before he stages anything."""

from __future__ import annotations

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.live.ack_lines import Released

REFUSAL = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition's journal")


class NoLines:
    """Nobody hears here what becomes of an entry."""

    def when(self, level: object, position: int, released: Released) -> None:
        released(False)

    when_certain = when


class LedElsewhere:
    """The staging side of a `WritePath`, all of it refused."""

    leads = False
    alone = False
    lines = NoLines()

    def stage(self, *what: object, **how: object) -> Refusal:
        return REFUSAL

    stage_marker = stage_kept = stage_fact = stage_start = stage_keyed = stage


NOT_HOSTED = LedElsewhere()
