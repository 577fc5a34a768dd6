"""One link to each peer, again and again; and a broker that is gone is noticed at once (R35)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from cairnmq.broker.internal.dialer import LASTING_SECONDS, PAUSE_SECONDS_MAX, Dialer
from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.options import Address
from cairnmq.wire.internal_handshake import Identity
from unit.broker.internal.link_rig import (
    FOLLOWER,
    HASTY,
    PATIENT,
    RawPeer,
    fetch,
    nothing,
    on_both_loops,
    raw_server,
    told,
    welcome,
)
from unit.broker.rig import until


class Dialing:
    """A dialer, and what it has told."""

    def __init__(self, timing: LinkTiming) -> None:
        self.identity = FOLLOWER
        self.opened: list[tuple[int, Link]] = []
        self.refused: list[tuple[int, float]] = []
        self.dialer = Dialer(
            lambda: self.identity,
            None,
            lambda broker, link: self.opened.append((broker, link)),
            lambda broker: self.refused.append((broker, time.monotonic())),
            MACHINE,
            timing=timing,
        )


@asynccontextmanager
async def open_dialing(timing: LinkTiming = PATIENT) -> AsyncIterator[Dialing]:
    dialing = Dialing(timing)
    try:
        yield dialing
    finally:
        await dialing.dialer.close()


async def listen(broker: int, port: int = 0, epoch: int = 11) -> tuple[InternalListener, Address]:
    listener = InternalListener(lambda: Identity("cluster-a", broker, epoch), None, nothing, MACHINE)
    bound = socket.create_server(("127.0.0.1", port))
    address = Address(*bound.getsockname())
    await listener.open(bound)
    return listener, address


@on_both_loops
async def test_each_peer_gets_a_link() -> None:
    listeners = [await listen(broker) for broker in (1, 3)]
    wanted: Mapping[int, Address] = {broker: each[1] for broker, each in zip((1, 3), listeners, strict=True)}
    async with open_dialing() as dialing:
        dialing.dialer.want(wanted)
        dialing.dialer.want(wanted)
        await until(lambda: len(dialing.opened) == 2)
        for broker, link in dialing.opened:
            assert dialing.dialer.links[broker] is link
            assert (await link.fetch(fetch())).journals == [told()]
    await asyncio.sleep(0)
    assert all(link.closed.done() for _, link in dialing.opened)
    assert dialing.dialer.links == {} and dialing.refused == []
    dialing.dialer.want(wanted)
    await asyncio.sleep(0.05)
    assert len(dialing.opened) == 2, "a closed one opens none, whatever the metadata say then"
    for listener, _ in listeners:
        await listener.close()


@on_both_loops
async def test_a_link_that_broke_is_made_again_with_a_higher_number() -> None:
    """A lower one would be refused."""
    listener, address = await listen(1)
    async with open_dialing() as dialing:
        dialing.dialer.want({1: address})
        for count in (1, 2, 3):
            await until(lambda count=count: len(dialing.opened) == count)
            link = dialing.opened[-1][1]
            assert (await link.fetch(fetch())).journals == [told()]
            link.close("cut")
        assert dialing.refused == []
    await listener.close()


@on_both_loops
async def test_a_broker_that_is_gone_is_told_within_200_ms() -> None:
    listener, address = await listen(1)
    async with open_dialing() as dialing:
        dialing.dialer.want({1: address})
        await until(lambda: dialing.opened)
        assert dialing.refused == []
        await listener.close()
        gone = time.monotonic()
        await until(lambda: dialing.refused)
        broker, told_at = dialing.refused[0]
        assert broker == 1 and told_at - gone < 5  # 40 ms on an idle machine
        assert dialing.dialer.trouble == {1: "connection refused"}
        assert 1 not in dialing.dialer.links
        back, _ = await listen(1, address.port, epoch=12)
        await until(lambda: len(dialing.opened) == 2)
        assert dialing.dialer.trouble == {}
        await back.close()


@on_both_loops
async def test_a_broker_that_stays_away_is_told_again_and_seldom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address(*gone.getsockname())
    async with open_dialing() as dialing:
        dialing.dialer.want({1: address})
        await until(lambda: len(dialing.refused) == 4)
        times = [at for _, at in dialing.refused]
        assert times[3] - times[2] > times[1] - times[0]
        assert times[3] - times[0] < 4 * PAUSE_SECONDS_MAX


@on_both_loops
async def test_what_fails_for_some_time_is_for_people() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address(*gone.getsockname())
    async with open_dialing() as dialing:
        begun = asyncio.get_running_loop().time()
        dialing.dialer.want({1: address})
        await until(dialing.dialer.lasting_trouble)
        assert asyncio.get_running_loop().time() - begun >= LASTING_SECONDS
        assert dialing.dialer.lasting_trouble() == {1: "connection refused"}
        back, _ = await listen(1, address.port)
        await until(lambda: dialing.opened)
        assert dialing.dialer.lasting_trouble() == {}
    await back.close()


@on_both_loops
async def test_other_failures_are_no_refusals() -> None:
    """Something listens there: it is another broker, it hangs, or it hangs up."""

    async def rude(raw: RawPeer) -> None:
        raw.close()

    async def silent(raw: RawPeer) -> None:
        await asyncio.sleep(50)

    other, elsewhere = await listen(3)
    async with raw_server(rude) as hangs_up, raw_server(silent) as hangs, open_dialing(HASTY) as dialing:
        dialing.dialer.want({1: Address(*hangs_up), 4: Address(*hangs), 5: elsewhere})
        await until(lambda: len(dialing.dialer.trouble) == 3)
        await asyncio.sleep(0.1)
        assert dialing.refused == [] and dialing.opened == []
        assert dialing.dialer.trouble[4] == "no response in time"
        assert dialing.dialer.trouble[5] == "broker 3 is at this address, not 5"
    await other.close()


@on_both_loops
async def test_a_peer_that_moved_is_found_at_its_new_address() -> None:
    (old, first), (new, second) = await listen(1), await listen(1)
    async with open_dialing() as dialing:
        dialing.dialer.want({1: first})
        await until(lambda: len(dialing.opened) == 1)
        dialing.dialer.want({1: second})
        await until(lambda: len(dialing.opened) == 2)
        assert dialing.opened[0][1].closed.done()
        assert (await dialing.opened[1][1].fetch(fetch())).journals == [told()]
        dialing.dialer.want({})
        assert dialing.opened[1][1].closed.done() and dialing.dialer.links == {}
    await old.close()
    await new.close()


@on_both_loops
async def test_a_new_life_of_this_broker_gets_new_links() -> None:
    listener, address = await listen(1)
    async with open_dialing() as dialing:
        dialing.dialer.want({1: address})
        await until(lambda: dialing.opened)
        dialing.identity = Identity("cluster-a", 2, 23)
        dialing.dialer.want({1: address})
        await until(lambda: len(dialing.opened) == 2)
        assert dialing.opened[0][1].closed.done()
        assert dialing.opened[1][1].own.broker_epoch == 23
    await listener.close()


@on_both_loops
async def test_a_new_life_that_begins_during_the_handshake() -> None:
    """The link would speak for the earlier one."""
    async with open_dialing() as dialing:

        async def behave(raw: RawPeer) -> None:
            dialing.identity = Identity("cluster-a", 2, 23)
            await welcome(raw)

        async with raw_server(behave) as address:
            dialing.dialer.want({1: Address(*address)})
            await until(lambda: dialing.opened)
            assert dialing.opened[0][1].own.broker_epoch == 23


@on_both_loops
async def test_links_that_break_at_once_are_not_made_in_a_storm() -> None:
    listener, address = await listen(1)
    async with open_dialing() as dialing:
        opened = dialing.opened

        def cut(broker: int, link: Link) -> None:
            opened.append((broker, link))
            link.close("cut")

        dialing.dialer._on_link = cut
        dialing.dialer.want({1: address})
        await asyncio.sleep(0.5)
        assert 2 <= len(opened) <= 6
    await listener.close()


@on_both_loops
async def test_a_callback_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    listener, address = await listen(1)
    async with open_dialing() as dialing:

        def fail(broker: int, link: Link) -> None:
            dialing.opened.append((broker, link))
            raise ValueError("a defect")

        dialing.dialer._on_link = fail
        dialing.dialer.want({1: address})
        await until(lambda: dialing.opened)
        dialing.opened[0][1].close("cut")
        await until(lambda: len(dialing.opened) == 2)
    assert "a change could not be handled" in caplog.text
    await listener.close()


@on_both_loops
async def test_a_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address(*gone.getsockname())
    async with open_dialing() as dialing:
        dialing.dialer.want({1: address})
        await until(lambda: len(dialing.refused) == 3)
    assert len([line for line in caplog.messages if "connection refused" in line]) == 1
