"""Who waits for news of a topic goes on in order, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cairnmq.broker.requests.unknown_topics import UnknownTopics
from unit.broker.rig import until


def test_those_of_one_topic_go_on_in_order() -> None:
    order: list[str] = []
    looks: list[asyncio.Event] = []
    unknown = UnknownTopics()

    async def catch_up() -> None:
        looks.append(asyncio.Event())
        await looks[-1].wait()

    def wait(name: str, *topics: str) -> None:
        unknown.wait(topics, catch_up, lambda: order.append(name))

    def named(*topics: str) -> Callable[[], set[str]]:
        return lambda: set(topics)

    async def scene() -> None:
        assert not unknown.holds(named("a"))
        wait("first", "a")
        wait("second", "a", "b")
        assert unknown.holds(named("b", "c")) and not unknown.holds(named("c"))
        await asyncio.sleep(0)
        wait("late", "b")  # the look has begun, and may miss what was made since
        looks[0].set()
        await until(lambda: len(looks) == 2)
        assert order == ["first", "second"]
        assert unknown.holds(named("b")) and not unknown.holds(named("a"))
        looks[1].set()
        await until(lambda: order[2:])
        assert order[2:] == ["late"] and not unknown.holds(named("b"))
        await asyncio.sleep(0)
        wait("again", "a")
        await asyncio.sleep(0)
        assert len(looks) == 3, "after a rest, too"
        looks[2].set()

    asyncio.run(scene())
