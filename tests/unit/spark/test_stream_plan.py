"""A streaming query's decisions on topics that only exist here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cairnmq.client.errors import Absent
from cairnmq.client.records import EARLIEST
from cairnmq.errors import ErrorCode
from cairnmq.spark.byte_limit import Seen
from cairnmq.spark.errors import DataLoss, SparkSourceError
from cairnmq.spark.options import ReadOptions, read_options
from cairnmq.spark.progress import Progress, TopicProgress, lag
from cairnmq.spark.ranges import Range
from cairnmq.spark.stream_plan import StreamPlan


class FakeView:
    """Topics by name: id and the end of each partition; all begin at `first`."""

    def __init__(self, **topics: tuple[str, list[int]]) -> None:
        self.held = topics
        self.published: list[Progress] = []
        self.waits = 0
        self.waited_at: Progress | None = None
        self.first = 0
        self.sizes: dict[int, float] = {}  # of a record, by partition
        self.looked_at: Mapping[str, Mapping[int, int]] = {}
        self.while_waiting: dict[str, tuple[str, list[int]]] = {}
        self.gone_at_lookup: set[str] = set()  # deleted since they were listed
        self.gone_at_sample: set[str] = set()

    def topics(self, *, missing_is_fatal: bool = True) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {name: (topic_id, tuple(range(len(ends)))) for name, (topic_id, ends) in self.held.items()}

    def lookup(self, topic: str, partitions: Sequence[int], time: int) -> Mapping[int, int]:
        if topic not in self.held or topic in self.gone_at_lookup:
            raise Absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
        return {index: self.first if time == EARLIEST else self.held[topic][1][index] for index in partitions}

    def latest(self, *, missing_is_fatal: bool = True) -> Progress:
        return progress(**self.held)

    def wait_for_more(self, progress: Progress) -> None:
        self.waits += 1
        self.waited_at = progress
        self.held.update(self.while_waiting)

    def sample(self, positions: Mapping[str, Mapping[int, int]]) -> Mapping[str, Mapping[int, Seen]]:
        for name in positions:
            if name in self.gone_at_sample:
                raise Absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        self.looked_at = positions
        return {name: {index: Seen(4, 4 * self.sizes[index]) for index in parts} for name, parts in positions.items()}

    def publish(self, group: str, progress: Progress) -> None:
        self.published.append(progress)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(**topics: tuple[str, list[int]]) -> Progress:
    return Progress({name: TopicProgress(topic_id, dict(enumerate(ends))) for name, (topic_id, ends) in topics.items()})


def options(**more: str) -> ReadOptions:
    named = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "startingOffsets": "earliest", **more}
    return read_options(named, stream=True)


def plan_of(view: FakeView, clock: Clock | None = None, **more: str) -> StreamPlan:
    return StreamPlan(options(**more), view, clock or Clock())


def test_it_begins_where_it_was_told() -> None:
    view = FakeView(a=("x", [5, 7]))
    assert plan_of(view).initial() == progress(a=("x", [0, 0]))
    assert plan_of(view, startingOffsets="latest").initial() == progress(a=("x", [5, 7]))


def test_a_batch_takes_all_there_is_or_as_much_as_it_may() -> None:
    view = FakeView(a=("x", [10, 30]))
    plan, start = plan_of(view), progress(a=("x", [0, 0]))
    assert plan.latest(start) == progress(a=("x", [10, 30]))
    assert plan.newest == progress(a=("x", [10, 30]))
    plan = plan_of(view, maxOffsetsPerTrigger="8")
    assert plan.latest(start) == progress(a=("x", [2, 6]))
    assert plan.latest(start, everything=True) == progress(a=("x", [10, 30]))


def test_a_limit_in_bytes_is_kept_by_what_records_take() -> None:
    view = FakeView(a=("x", [100, 100, 7]))
    view.sizes = {0: 1000.0, 1: 10.0}
    start = progress(a=("x", [0, 0, 7]))
    assert plan_of(view, maxBytesPerTrigger="1m").latest(start) == progress(a=("x", [100, 100, 7]))
    assert plan_of(view, maxBytesPerTrigger="50500").latest(start) == progress(a=("x", [50, 50, 7]))
    both = plan_of(view, maxBytesPerTrigger="50500", maxOffsetsPerTrigger="20")
    assert both.latest(start) == progress(a=("x", [10, 10, 7]))
    assert plan_of(view, maxBytesPerTrigger="1").latest(start) == progress(a=("x", [1, 1, 7])), "it always moves on"
    assert view.looked_at == {"a": {0: 0, 1: 0}}, "where there is something to read"


def test_what_is_gone_is_not_looked_at() -> None:
    view = FakeView(a=("x", [100]))
    view.first = 60
    view.sizes = {0: 1000.0}
    plan_of(view, maxBytesPerTrigger="5k", failOnDataLoss="false").latest(progress(a=("x", [10])))
    assert view.looked_at == {"a": {0: 60}}


def test_a_topic_that_is_deleted_while_it_is_looked_at_does_not_count() -> None:
    start = progress(a=("x", [0]), b=("y", [0]))
    for names, end in (({"b"}, [50]), ({"a", "b"}, [100])):  # of b the same, and nothing is known of either
        for moment in ("gone_at_lookup", "gone_at_sample"):
            view = FakeView(a=("x", [100]), b=("y", [100]))
            view.sizes = {0: 10.0}
            setattr(view, moment, names)
            with pytest.raises(Absent, match="topic [ab] does not exist"):
                plan_of(view, maxBytesPerTrigger="1000").latest(start)
            plan = plan_of(view, maxBytesPerTrigger="1000", failOnDataLoss="false")
            assert plan.latest(start) == progress(a=("x", end), b=("y", end))


def test_with_nothing_new_it_waits_once_and_gives_back_the_same() -> None:
    view = FakeView(a=("x", [10]))
    start = progress(a=("x", [10]))
    assert plan_of(view).latest(start) is start
    view.while_waiting = {"a": ("x", [11])}
    assert plan_of(view).latest(start) == progress(a=("x", [11]))
    assert view.waits == 2


def test_available_now_ends_at_what_there_was_and_never_waits() -> None:
    view = FakeView(a=("x", [10]))
    plan = plan_of(view)
    plan.stop_at_present()
    view.held = {"a": ("x", [50, 5])}
    end = plan.latest(progress(a=("x", [0])))
    assert end == progress(a=("x", [10]))
    assert plan.latest(end) is end
    assert view.waits == 0


def test_new_partitions_begin_at_their_first_record() -> None:
    view = FakeView(a=("x", [10, 4]))
    plan, start = plan_of(view), progress(a=("x", [10]))
    end = plan.latest(start)
    assert end == progress(a=("x", [10, 4]))
    assert plan.tasks(start, end) == [(Range("a", "x", 1, 0, 4),)]


def test_new_topics_of_a_pattern_too() -> None:
    view = FakeView(a=("x", [3]), b=("y", [2]))
    plan, start = plan_of(view), progress(a=("x", [1]))
    ranges = plan.tasks(start, plan.latest(start))
    assert ranges == [(Range("a", "x", 0, 1, 3), Range("b", "y", 0, 0, 2))]


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        ({"a": ("other", [50])}, "topic a was deleted and created again"),
        ({}, "topic a was deleted while"),
        ({"a": ("x", [5])}, "a-0 ends at 5, the query had read up to 10"),
    ],
)
def test_what_is_gone_is_an_error(now: dict[str, tuple[str, list[int]]], sentence: str) -> None:
    start = progress(a=("x", [10]))
    with pytest.raises(DataLoss, match=sentence):
        plan_of(FakeView(**now)).latest(start)


def test_what_is_gone_of_a_new_partition_is_an_error_too() -> None:
    view = FakeView(a=("x", [10, 9]))
    view.first = 4
    start = progress(a=("x", [10]))
    with pytest.raises(DataLoss, match="records of a-1 from offset 0 on are gone: the partition now starts at 4"):
        plan_of(view).latest(start)
    plan = plan_of(view, failOnDataLoss="false")
    assert plan.tasks(start, plan.latest(start)) == [(Range("a", "x", 1, 4, 9),)]


def test_unless_the_query_may_lose_data() -> None:
    start = progress(a=("x", [10]))
    plan = plan_of(FakeView(a=("other", [3])), failOnDataLoss="false")
    end = plan.latest(start)
    assert end == progress(a=("other", [3]))
    assert plan.tasks(start, end) == [(Range("a", "other", 0, 0, 3),)]
    assert plan_of(FakeView(), failOnDataLoss="false").latest(start) is start


def test_a_topic_that_an_earlier_run_planned_to_read_and_that_is_gone() -> None:
    """Offsets of a batch are noted before it runs, and every restart is given the same ones."""
    start, end = progress(a=("x", [3])), progress(a=("x", [7]), b=("y", [5, 5]))
    view = FakeView(a=("x", [9]))
    with pytest.raises(DataLoss, match="topic b was deleted while"):
        plan_of(view).tasks(start, end)
    assert plan_of(view, failOnDataLoss="false").tasks(start, end) == [(Range("a", "x", 0, 3, 7),)]


def test_a_batch_of_an_earlier_run_is_planned_as_it_was() -> None:
    view = FakeView(a=("x", [99]))
    ranges = plan_of(view).tasks(progress(a=("x", [3])), progress(a=("x", [7])))
    assert ranges == [(Range("a", "x", 0, 3, 7),)]


def test_it_waits_for_enough_records_but_not_for_ever() -> None:
    view, clock = FakeView(a=("x", [4])), Clock()
    plan, start = plan_of(view, clock, minOffsetsPerTrigger="10", maxTriggerDelay="60s"), progress(a=("x", [0]))
    assert plan.latest(start) is start
    assert view.waits == 1 and view.waited_at == progress(a=("x", [4])), "for what comes behind these"
    clock.now = 59.0
    assert plan.latest(start) is start
    clock.now = 60.0
    assert plan.latest(start) == progress(a=("x", [4]))
    view.held = {"a": ("x", [14])}
    assert plan.latest(progress(a=("x", [4]))) == progress(a=("x", [14]))


def test_a_trigger_may_want_all_there_is() -> None:
    for limits in ({"minOffsetsPerTrigger": "10"}, {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1"}):
        plan = plan_of(FakeView(a=("x", [9])), None, **limits)
        assert plan.latest(progress(a=("x", [0])), everything=True) == progress(a=("x", [9]))


def test_a_group_is_told_what_was_processed_once() -> None:
    view = FakeView(a=("x", [10]))
    plan, start = plan_of(view, group="g"), progress(a=("x", [0]))
    end = plan.latest(start)
    plan.finished(end)
    plan.latest(end)
    assert view.published == [start, end]


def test_lag_from_what_spark_reports() -> None:
    source = {"endOffset": progress(a=("x", [3, 9])).to_json(), "latestOffset": progress(a=("x", [10, 9])).to_json()}
    assert lag(source) == {"a": {0: 7, 1: 0}}
    assert lag({"endOffset": None, "latestOffset": None}) == {}


def test_offsets_of_another_source_are_refused() -> None:
    with pytest.raises(SparkSourceError, match="written by another source"):
        Progress.of_json({"a": {"0": 5}})
