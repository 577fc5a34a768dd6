"""How long a follower's request may wait, and what ends the wait."""

from __future__ import annotations

import asyncio

from cairnmq.broker.internal.peer import Parked, Peer
from cairnmq.wire.internal import DATA, Hello
from unit.broker.internal.link_rig import on_both_loops


def make_peer() -> Peer:
    return Peer(Hello("c", 2, 22, 1, DATA, 1, 1, bytes(16)), 1)


async def parked(peer: Peer, seconds: float = 50) -> asyncio.Task[Parked]:
    task = asyncio.create_task(peer.park(seconds))
    await asyncio.sleep(0)
    return task


@on_both_loops
async def test_a_wait_ends_when_it_is_woken() -> None:
    peer = make_peer()
    task = await parked(peer)
    peer.wake()
    peer.wake()
    assert await task is Parked.WOKEN


@on_both_loops
async def test_a_wait_ends_after_its_time() -> None:
    assert await make_peer().park(0.001) is Parked.TIMED_OUT


@on_both_loops
async def test_a_later_request_ends_the_wait_for_good() -> None:
    peer = make_peer()
    task = await parked(peer)
    peer.supersede()
    assert await task is Parked.SUPERSEDED
    assert peer.superseded.done()
    assert await peer.park(50) is Parked.SUPERSEDED


@on_both_loops
async def test_the_next_request_may_wait_again() -> None:
    peer = make_peer()
    peer.supersede()
    peer.begin(superseded=False)
    assert not peer.superseded.done()
    task = await parked(peer)
    peer.wake()
    assert await task is Parked.WOKEN
    peer.begin(superseded=True)
    assert await peer.park(50) is Parked.SUPERSEDED


@on_both_loops
async def test_a_wake_up_without_a_wait_is_no_wake_up() -> None:
    peer = make_peer()
    peer.wake()
    assert await peer.park(0.001) is Parked.TIMED_OUT


@on_both_loops
async def test_a_wait_that_was_cancelled_leaves_nothing() -> None:
    peer = make_peer()
    task = await parked(peer)
    task.cancel()
    await asyncio.wait([task])
    peer.wake()
    assert await peer.park(0.001) is Parked.TIMED_OUT
