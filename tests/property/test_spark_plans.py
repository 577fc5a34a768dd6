"""Plans of Spark queries: nothing is read twice, nothing is left out, limits hold."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.spark.byte_limit import Seen, records_within
from cairnmq.spark.progress import Progress, TopicProgress, behind, capped, limited
from cairnmq.spark.ranges import RECORDS_PER_TASK, Range, ranges_between, tasks

OFFSETS = st.integers(0, 2**40)


@st.composite
def spans(draw: st.DrawFn) -> tuple[Progress, Progress]:
    """Where a query is, and what there is."""
    names = draw(st.lists(st.sampled_from("abc"), unique=True))
    start, end = {}, {}
    for name in names:
        begun = draw(st.dictionaries(st.integers(0, 12), OFFSETS, max_size=6))
        start[name] = TopicProgress(name, begun)
        backlog = st.one_of(st.just(0), st.integers(0, 100), st.integers(0, 10**6))
        end[name] = TopicProgress(name, {index: offset + draw(backlog) for index, offset in begun.items()})
    return Progress(start), Progress(end)


def total(start: Progress, end: Progress) -> int:
    return sum(sum(part.values()) for part in behind(start, end).values())


@given(spans(), st.integers(1, 10**6))
def test_a_limit_is_kept_shared_out_and_always_moves_on(span: tuple[Progress, Progress], most: int) -> None:
    start, latest = span
    end = limited(start, latest, most)
    partitions = sum(len(topic.offsets) for topic in latest.topics.values())
    assert total(start, end) <= max(most, 0) + partitions
    for name, part in behind(start, latest).items():
        for index, left in part.items():
            taken = end.topics[name].offsets[index] - start.topics[name].offsets[index]
            assert (1 if left else 0) <= taken <= left
    if total(start, latest) <= most:
        assert end == latest


@given(spans(), st.integers(1, 10**9), st.data())
def test_a_limit_in_bytes_is_kept(span: tuple[Progress, Progress], most: int, data: st.DataObject) -> None:
    """Where records look all alike within a partition."""
    start, latest = span
    left = behind(start, latest)
    sizes = {name: {index: data.draw(st.integers(1, 10**6)) for index in part} for name, part in left.items()}
    samples = {name: {index: Seen(3, 3 * size) for index, size in part.items()} for name, part in sizes.items()}
    taken = behind(start, limited(start, latest, records_within(left, samples, most)))
    counts = [(taken[name][index], size) for name, part in sizes.items() for index, size in part.items()]
    assert sum(count * size for count, size in counts if count > 1) <= most, "one of each partition is always taken"
    total_bytes = sum(left[name][index] * size for name, part in sizes.items() for index, size in part.items())
    if total_bytes <= most:
        assert taken == left


@given(spans(), st.integers(1, 1000))
def test_a_limited_query_reaches_the_end(span: tuple[Progress, Progress], share: int) -> None:
    start, latest = span
    most = max(1, total(start, latest) // share)
    for _ in range(4 * share + 8):
        if start == latest:
            break
        start = limited(start, latest, most)
    assert start == latest


@given(spans(), st.one_of(st.none(), st.integers(1, 60)), st.one_of(st.none(), st.integers(1000, 10**6)))
def test_tasks_read_every_offset_once(span: tuple[Progress, Progress], least: int | None, longest: int | None) -> None:
    start, end = span
    wanted = ranges_between(start, end)
    planned = tasks(wanted, least, longest)
    pieces = [piece for each in planned for piece in each]
    joined: list[Range] = []
    for piece in pieces:
        assert piece.start < piece.end
        last = joined[-1] if joined else None
        if last and (last.topic, last.partition, last.end) == (piece.topic, piece.partition, piece.start):
            joined[-1] = Range(last.topic, last.topic_id, last.partition, last.start, piece.end)
        else:
            joined.append(piece)
    assert joined == wanted
    if longest is not None:
        assert all(piece.records <= longest for piece in pieces)
    if least is not None:
        assert len(planned) >= min(least, total(start, end))
    if least is None and longest is None:
        for each in planned:
            assert len(each) == 1 or sum(piece.records for piece in each) <= RECORDS_PER_TASK


@given(spans())
def test_progress_survives_a_checkpoint_and_equal_ones_look_alike(span: tuple[Progress, Progress]) -> None:
    start, _ = span
    text = json.dumps(start.to_json())
    assert Progress.of_json(json.loads(text)) == start
    shuffled = {
        name: TopicProgress(topic.id, dict(reversed(topic.offsets.items())))
        for name, topic in reversed(start.topics.items())
    }
    assert json.dumps(Progress(shuffled).to_json()) == text


@given(spans())
def test_a_target_is_never_passed(span: tuple[Progress, Progress]) -> None:
    target, latest = span
    assert capped(latest, target) == target
    assert capped(target, latest) == target
