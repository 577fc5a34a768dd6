"""Who should read what: the server's assignors, `uniform` and `range`. Pure, and bounded in time.

Both give every partition of every subscribed topic to exactly one member that subscribes to it. `uniform` spreads them
evenly over all topics and moves as few as it can; `range` gives each member a run of neighbours in each topic, the same
numbers in every topic that has as many partitions and the same subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from msgspec import Struct

from cairnmq.groups.partitions import Partitions, count, each, gathered, union

UNIFORM, RANGE = "uniform", "range"
WORK_MAX = 300_000  # members looked at when partitions are passed along; about a tenth of a second
PASSES = 16  # over all topics of unlike subscriptions; each one only ever makes loads more even

Place: TypeAlias = tuple[bytes, int]


class Seat(Struct, frozen=True):
    """A member as assignors see it: the ids of topics it subscribes to, and what it was to read so far."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Partitions = {}

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by their instance: these names last, so that ranges stay where they are."""
        return self.instance_id is None, self.instance_id or self.member_id


Counts: TypeAlias = Mapping[bytes, int]  # topic id -> how many partitions it has
Result: TypeAlias = dict[str, Partitions]
Assignor: TypeAlias = Callable[[Sequence[Seat], Counts], Result]


def assign_range(seats: Sequence[Seat], counts: Counts) -> Result:
    given: dict[str, list[tuple[bytes, range]]] = {seat.member_id: [] for seat in seats}
    readers = _readers(sorted(seats, key=lambda seat: seat.order), counts)
    for topic_id, members in readers.items():
        least, extra = divmod(counts[topic_id], len(members))
        start = 0
        for number, member_id in enumerate(members):
            end = start + least + (number < extra)
            if end > start:
                given[member_id].append((topic_id, range(start, end)))
            start = end
    return {member_id: gathered(rows) for member_id, rows in given.items()}


def assign_uniform(seats: Sequence[Seat], counts: Counts) -> Result:
    if not seats:
        return {}
    first = seats[0].topics
    if all(seat.topics == first for seat in seats):
        return _alike(seats, {topic_id: counts[topic_id] for topic_id in first if topic_id in counts})
    return _unlike(seats, counts)


def _alike(seats: Sequence[Seat], counts: Counts) -> Result:
    """All read the same topics: each gets the average, and those who have more keep one of what is left over."""
    least, extra = divmod(sum(counts.values()), len(seats))
    result, free = _kept(seats, counts)
    sizes = {member_id: count(kept) for member_id, kept in result.items()}
    short: list[tuple[str, int]] = []
    # Who has most keeps the odd ones. Among equals the order is by name, so that the outcome does not hang on it.
    for member_id in sorted(sizes, key=lambda member_id: (-sizes[member_id], member_id)):
        quota = least + (extra > 0)
        extra -= extra > 0
        if sizes[member_id] > quota:
            places = sorted(each(result[member_id]))
            free += places[quota:]
            result[member_id] = _gathered(places[:quota])
        elif sizes[member_id] < quota:
            short.append((member_id, quota - sizes[member_id]))
    free.sort(reverse=True)
    for member_id, missing in short:
        result[member_id] = union(result[member_id], _gathered([free.pop() for _ in range(missing)]))
    assert not free, "quotas add up to all partitions"
    return result


def _unlike(seats: Sequence[Seat], counts: Counts) -> Result:
    """Subscriptions differ: first what nobody has goes to whoever has least, then topics even out among readers."""
    readers = _readers(sorted(seats, key=lambda seat: seat.member_id), counts)
    kept, free = _kept(seats, {topic_id: counts[topic_id] for topic_id in readers})
    load = {member_id: count(mine) for member_id, mine in kept.items()}
    by_topic: dict[bytes, dict[str, list[int]]] = {topic_id: {} for topic_id in readers}
    for member_id, mine in kept.items():
        for topic_id, some in mine.items():
            by_topic[topic_id][member_id] = sorted(some)
    unread: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(free):
        unread.setdefault(topic_id, []).append(index)
    # Topics with few readers first: the others have more choice later.
    for topic_id in sorted(unread, key=lambda topic_id: (len(readers[topic_id]), topic_id)):
        heap = [(load[member_id], member_id) for member_id in readers[topic_id]]
        heapify(heap)
        for index in unread[topic_id]:
            least, member_id = heap[0]
            by_topic[topic_id].setdefault(member_id, []).append(index)
            load[member_id] = least + 1
            heapreplace(heap, (least + 1, member_id))
    for _ in range(PASSES):
        if not sum([_even_out(by_topic[topic_id], readers[topic_id], load) for topic_id in readers]):
            break
    _pass_along(by_topic, readers, load)
    given: dict[str, list[tuple[bytes, list[int]]]] = {seat.member_id: [] for seat in seats}
    for topic_id, owners in by_topic.items():
        for member_id, indexes in owners.items():
            given[member_id].append((topic_id, indexes))
    return {member_id: gathered(rows) for member_id, rows in given.items()}


def _even_out(owners: dict[str, list[int]], readers: Sequence[str], load: dict[str, int]) -> int:
    """Moves partitions of one topic from whoever has most to whoever has least; how many it moved."""
    heavy = [(-load[member_id], member_id) for member_id, indexes in owners.items() if indexes]
    light = [(load[member_id], member_id) for member_id in readers]
    heapify(heavy)
    heapify(light)
    moved = 0
    while heavy and light:
        most, giver = heavy[0]
        fewest, taker = light[0]
        if -most != load[giver] or not owners[giver]:
            heappop(heavy)  # a former load
            if owners[giver]:
                heappush(heavy, (-load[giver], giver))
        elif fewest != load[taker]:
            heapreplace(light, (load[taker], taker))
        elif load[giver] - fewest <= 1:
            break
        else:
            owners.setdefault(taker, []).append(owners[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            moved += 1
    return moved


def _pass_along(
    by_topic: Mapping[bytes, dict[str, list[int]]], readers: Mapping[bytes, Sequence[str]], load: dict[str, int]
) -> None:
    """Who has too much may share no topic with who has too little: then it goes through others, each passing one on."""
    work = 0
    has: dict[str, set[bytes]] = {member_id: set() for member_id in load}
    for topic_id, owners in by_topic.items():
        for member_id, indexes in owners.items():
            if indexes:
                has[member_id].add(topic_id)
    stuck: set[str] = set()
    while work < WORK_MAX:
        least = min(load.values())
        giver = max((one for one in load if one not in stuck), key=lambda one: (load[one], one), default="")
        if not giver or load[giver] - least <= 1:
            return
        came: dict[str, tuple[str, bytes]] = {giver: ("", b"")}
        seen: set[bytes] = set()
        line = [giver]
        for member_id in line:  # grows while it is read
            for topic_id in sorted(has[member_id] - seen):
                seen.add(topic_id)
                work += len(readers[topic_id])
                for other in readers[topic_id]:
                    if other not in came:
                        came[other] = member_id, topic_id
                        line.append(other)
        taker = min(line, key=lambda one: (load[one], one))
        if load[giver] - load[taker] <= 1:
            stuck.add(giver)
            continue
        load[giver] -= 1
        load[taker] += 1
        while taker != giver:
            before, topic_id = came[taker]
            owners = by_topic[topic_id]
            owners.setdefault(taker, []).append(owners[before].pop())
            has[taker].add(topic_id)
            if not owners[before]:
                has[before].discard(topic_id)
            taker = before


def _readers(seats: Sequence[Seat], counts: Counts) -> dict[bytes, list[str]]:
    """Topics that exist and somebody reads, with their readers in the order of the seats."""
    found: dict[bytes, list[str]] = {}
    for seat in seats:
        for topic_id in seat.topics:
            if topic_id in counts:
                found.setdefault(topic_id, []).append(seat.member_id)
    return dict(sorted(found.items()))


def _kept(seats: Sequence[Seat], counts: Counts) -> tuple[Result, list[Place]]:
    """What members may keep of what they had, and what nobody has. Most keep everything: then it is the same object."""
    left = {topic_id: set(range(number)) for topic_id, number in counts.items()}
    kept: Result = {}
    for seat in seats:
        lost = False
        mine: dict[bytes, frozenset[int]] = {}
        for topic_id, indexes in seat.target.items():
            free = left.get(topic_id) if topic_id in seat.topics else None
            if free is None:
                lost = True
            elif indexes <= free:
                mine[topic_id] = indexes
                free -= indexes
            else:
                lost = True
                some = indexes & free
                if some:
                    mine[topic_id] = some
                    free -= some
        kept[seat.member_id] = mine if lost else seat.target
    return kept, [(topic_id, index) for topic_id, free in left.items() for index in free]


def _gathered(places: Sequence[Place]) -> Partitions:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        by_topic.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
