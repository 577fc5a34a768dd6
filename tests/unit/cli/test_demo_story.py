"""What the cluster demo says while brokers die and come back."""

from __future__ import annotations

from cairnmq.cli.demo_story import RESTART_SECONDS, Gap, Sample, Story

PIDS = {1: 101, 2: 102, 3: 103}
LEADERS = {0: 1, 1: 2, 2: 3}


def sample(now: float, **fields: object) -> Sample:
    given: dict[str, object] = {
        "pids": PIDS,
        "leaders": LEADERS,
        "in_sync": dict.fromkeys(LEADERS, 3),
        "acked_at": dict.fromkeys(LEADERS, now),
        "gaps": {},
        "acked": 0,
        "read": 0,
    }
    return Sample(now=now, **{**given, **fields})  # type: ignore[arg-type]


def without(*dead: int) -> dict[int, int]:
    return {number: pid for number, pid in PIDS.items() if number not in dead}


def test_it_invites_to_kill_one_that_leads_most_and_only_once() -> None:
    story = Story(PIDS, 3)
    assert story.said(sample(0, in_sync={0: 1, 1: 1, 2: 1})) == [], "replicas are not in sync yet"
    (said,) = story.said(sample(1, leaders={0: 2, 1: 2, 2: 3}))
    assert said == "now kill one, for example broker 2:  kill -9 102"
    assert story.said(sample(2)) == []


def test_lines_tell_leaders_and_rates() -> None:
    story = Story(PIDS, 3)
    assert story.line(sample(0)).endswith("written    0/s, read    0/s")
    line = story.line(sample(2, acked=240, read=200, leaders={0: 1, 1: 1, 2: -1}, pids=without(3)))
    assert line == "broker 1 leads 0 1 | broker 2 leads - | broker 3 is dead | written  120/s, read  100/s"
    assert story.line(sample(3, acked=240, read=200, wrong=2)).endswith(", 2 LOST OR DOUBLE")


def test_a_death_a_takeover_and_a_return() -> None:
    story = Story(PIDS, 3)
    story.said(sample(0))
    (died,) = story.said(sample(10, pids=without(2), acked_at={0: 10, 1: 9.9, 2: 10}))
    assert died == "broker 2 is gone; it led partition 1. It starts again in 20 s"
    assert story.dead == [2]
    assert story.said(sample(10.5, pids=without(2), acked_at={0: 10.5, 1: 9.9, 2: 10.5})) == []
    stale = sample(11.3, pids=without(2), gaps={1: [Gap(9.9, 11.2)]})
    assert story.said(stale) == [], "the metadata still name the dead one"
    moved = {0: 1, 1: 3, 2: 3}
    gaps = {0: [Gap(1.0, 9.5)], 1: [Gap(2.0, 8.0), Gap(9.9, 11.2)]}
    (over,) = story.said(sample(11.4, pids=without(2), leaders=moved, gaps=gaps, in_sync={0: 2, 1: 2, 2: 2}))
    assert over == "partition 1 stood still for 1.3 s; the other partitions went on. Led now: 1 by broker 3"
    back = {**PIDS, 2: 202}
    (returned,) = story.said(sample(31, pids=back, leaders=moved, in_sync={0: 2, 1: 2, 2: 2}))
    assert returned == "broker 2 is back (pid 202) and copies what it missed" and story.dead == []
    assert story.said(sample(33, pids=back, leaders=moved)) == [
        "all partitions have 3 replicas in sync again",
        "now kill one, for example broker 3:  kill -9 103",
    ]


def test_it_is_due_after_a_while() -> None:
    story = Story(PIDS, 3, keys=True)
    story.said(sample(0))
    (died,) = story.said(sample(5, pids=without(1)))
    assert died.endswith("in 20 s, or at once when you press Enter")
    assert story.due(5 + RESTART_SECONDS - 0.1) == [] and story.due(5 + RESTART_SECONDS) == [1]


def test_a_takeover_that_its_own_return_brings_is_told_too() -> None:
    """Nobody else was in sync."""
    story = Story(PIDS, 1)
    story.said(sample(0))
    story.said(sample(5, pids=without(1), acked_at={0: 4.9, 1: 5, 2: 5}))
    said = story.said(sample(26, gaps={0: [Gap(4.9, 25.9)]}))
    assert said[:2] == [
        "broker 1 is back (pid 101) and copies what it missed",
        "partition 0 stood still for 21.0 s; the other partitions went on. Led now: 0 by broker 1",
    ]


def test_a_broker_that_led_nothing() -> None:
    story = Story(PIDS, 3)
    story.said(sample(0, leaders={0: 1, 1: 1, 2: 1}))
    (died,) = story.said(sample(5, leaders={0: 1, 1: 1, 2: 1}, pids=without(3)))
    assert "it led nothing" in died
    assert story.said(sample(6, leaders={0: 1, 1: 1, 2: 1}, pids=without(3))) == []
