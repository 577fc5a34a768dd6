"""A decision is a value that a core fills."""

from __future__ import annotations

from cairnmq.decision import Decision


def test_responses_keep_their_order() -> None:
    decision: Decision[str, str] = Decision()
    decision.respond("a", "first")
    decision.respond("b", "second")
    assert decision.responses == [("a", "first"), ("b", "second")]
    assert decision.records == [] and decision.effects == []
