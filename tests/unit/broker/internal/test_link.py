"""A follower's end of a link: bytes that arrive as they were, and peers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from crc32c import crc32c
from msgspec.structs import replace

from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.link import Link, LinkClosed
from cairnmq.broker.internal.link_timing import LinkTiming
from cairnmq.broker.internal.peer import Peer
from cairnmq.broker.machine import MACHINE
from cairnmq.wire.internal import (
    Failed,
    Failure,
    Kind,
    ReplicaFetch,
    ReplicaFetched,
    decode,
    encode,
    frame_head,
)
from cairnmq.wire.internal_handshake import Identity, LinkRefused
from unit.broker.internal.link_rig import (
    FOLLOWER,
    HASTY,
    LEADER,
    QUICK,
    SECRET,
    Range,
    RawPeer,
    ask,
    fetch,
    on_both_loops,
    open_bench,
    raw_server,
    told,
    welcome,
    write_file,
)
from unit.broker.rig import until


def serving(file: int, size: int) -> Callable[[Peer, ReplicaFetch], Awaitable[Answer]]:
    """Serves a file as journal 0 from where the follower is."""

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        at = request.journals[0].end
        count = min(request.max_bytes, size - at)
        half = count // 2
        return Answer([told(count)], [[Range(file, at, half), Range(file, at + half, count - half)]])

    return serve


@pytest.mark.parametrize("max_bytes", [1 << 20, 8 << 20])
@on_both_loops
async def test_200_mb_arrive_as_they_were(tmp_path: Path, max_bytes: int) -> None:
    size = 200 << 20
    expected = crc32c(write_file(tmp_path / "file", size))
    with (tmp_path / "file").open("rb") as file:
        async with open_bench(serving(file.fileno(), size), secret=SECRET) as bench:
            link = await bench.link(secret=SECRET)
            at = crc = 0
            while at < size:
                with await link.fetch(fetch(ask(end=at), max_bytes=max_bytes)) as fetched:
                    crc = crc32c(fetched.data(0), crc)
                    at += len(fetched.data(0))
            assert (at, crc) == (size, expected)


@on_both_loops
async def test_two_in_flight_do_not_mix(tmp_path: Path) -> None:
    """Both buffers are in use while the next response arrives."""
    size, piece = 40 << 20, 3 << 20
    data = write_file(tmp_path / "file", size)
    with (tmp_path / "file").open("rb") as file:
        async with open_bench(serving(file.fileno(), size)) as bench:
            link = await bench.link()
            ahead = [asyncio.create_task(link.fetch(fetch(ask(end=at), max_bytes=piece))) for at in (0, piece)]
            for at in range(2 * piece, 12 * piece, piece):
                fetched = await ahead.pop(0)
                ahead.append(asyncio.create_task(link.fetch(fetch(ask(end=at), max_bytes=piece))))
                await asyncio.sleep(0.001)
                assert fetched.data(0) == data[at - 2 * piece : at - piece]
                fetched.release()
            for task in ahead:
                (await task).release()


@on_both_loops
async def test_a_third_request_waits_for_its_turn() -> None:
    started: list[int] = []

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        started.append(request.journals[0].end)
        await peer.park(50)
        return Answer([told(journal=request.journals[0].end)])

    async with open_bench(serve) as bench:
        link = await bench.link()
        tasks = [asyncio.create_task(link.fetch(fetch(ask(end=end), wait_ms=50_000))) for end in range(6)]
        for end, task in enumerate(tasks[:5]):
            assert [one.journal for one in (await task).journals] == [end]
        assert started == list(range(6))
        tasks[5].cancel()


@on_both_loops
async def test_journals_have_their_own_bytes() -> None:
    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        parts = [[memoryview(b"ab"), memoryview(b"c")], [], [memoryview(bytes(100_000))]]
        return Answer([told(3, 7), told(0, 8), told(100_000, 9)], parts)

    async with open_bench(serve) as bench:
        fetched = await (await bench.link()).fetch(fetch())
        assert [bytes(fetched.data(journal)) for journal in (7, 8, 9)] == [b"abc", b"", bytes(100_000)]
        fetched.release()
        with pytest.raises(KeyError):
            fetched.data(7)


@on_both_loops
async def test_a_fetch_that_is_cancelled_leaves_the_link() -> None:
    """Its bytes arrive all the same, and its place is taken until then."""
    peers: list[Peer] = []

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        peers.append(peer)
        await peer.park(request.wait_ms / 1000)
        return Answer([told(1 << 20)], [[memoryview(bytes([len(peers)]) * (1 << 20))]])

    async with open_bench(serve) as bench:
        link = await bench.link()
        for _ in range(3):
            task = asyncio.create_task(link.fetch(fetch(wait_ms=50_000)))
            count = len(peers)
            await until(lambda count=count: len(peers) > count)
            task.cancel()
            await asyncio.wait([task])
        await until(lambda: link._memory._kept)
        with await link.fetch(fetch()) as fetched:
            assert bytes(fetched.data(0)) == bytes([4]) * (1 << 20)
        assert not link.closed.done()


async def connect(address: tuple[str, int], timing: LinkTiming = QUICK) -> Link:
    return await Link.connect(*address, FOLLOWER, None, 1, MACHINE, to=LEADER.broker, timing=timing)


@pytest.mark.parametrize(
    ("identity", "secret", "own_secret", "code"),
    [
        (Identity("cluster-b", 1, 11), None, None, Failure.OTHER_CLUSTER),
        (Identity("cluster-a", 3, 11), None, None, Failure.OTHER_BROKER),
        (Identity("cluster-a", 1, 11, 2, 3), None, None, Failure.NO_COMMON_VERSION),
        (LEADER, SECRET, None, Failure.SECRET_MISSING),
        (LEADER, None, SECRET, Failure.SECRET_MISSING),
        (LEADER, SECRET, SECRET + b"!", Failure.SECRET_WRONG),
    ],
    ids=["cluster", "broker", "versions", "no secret here", "no secret there", "another secret"],
)
@on_both_loops
async def test_reasons_to_refuse_reach_both_sides(
    identity: Identity, secret: bytes | None, own_secret: bytes | None, code: Failure
) -> None:
    async with open_bench(identity=identity, secret=secret) as bench:
        with pytest.raises(LinkRefused) as caught:
            await bench.link(secret=own_secret)
        assert caught.value.code is code
        assert bench.listener.links() == []


@on_both_loops
async def test_versions_agree_on_the_highest() -> None:
    async with open_bench(identity=Identity("cluster-a", 1, 11, 1, 4)) as bench:
        link = await bench.link(identity=Identity("cluster-a", 2, 22, 2, 3))
        assert link.peer == Identity("cluster-a", 1, 11, 3, 3)


@on_both_loops
async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await connect(address)


def sockets_to(other: socket.socket) -> int:
    """Of this process."""
    connections = psutil.Process().net_connections("tcp4")
    return sum(each.raddr == other.getsockname() for each in connections)


@on_both_loops
async def test_a_machine_that_does_not_respond() -> None:
    """Its queue of connections is full, so nothing comes back at all."""
    with socket.socket() as deaf, ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(deaf.getsockname())
        assert sockets_to(deaf) == 3
        timing = replace(QUICK, connect_seconds=0.1)
        with pytest.raises(TimeoutError):
            await Link.connect(*deaf.getsockname(), FOLLOWER, None, 1, MACHINE, timing=timing)
        assert sockets_to(deaf) == 3


@on_both_loops
async def test_a_link_at_rest_gives_its_memory_back(tmp_path: Path) -> None:
    size = 1 << 20
    write_file(tmp_path / "file", size)
    with (tmp_path / "file").open("rb") as file:
        async with open_bench(serving(file.fileno(), size)) as bench:
            link = await bench.link()
            (await link.fetch(fetch(ask(end=0), max_bytes=size))).release()
            assert link._memory._kept
            for _ in range(20):
                (await link.fetch(fetch(ask(end=size)))).release()
            assert not link._memory._kept


@on_both_loops
async def test_a_name_is_looked_up() -> None:
    async with open_bench() as bench:
        link = await Link.connect("localhost", bench.address[1], FOLLOWER, None, 1, MACHINE)
        bench.links.append(link)
        assert (await link.fetch(fetch())).journals == [told()]


@on_both_loops
async def test_a_peer_that_never_says_hello() -> None:
    async def silent(raw: RawPeer) -> None:
        await asyncio.sleep(50)

    async with raw_server(silent) as address:
        with pytest.raises(TimeoutError):
            await connect(address, HASTY)


@on_both_loops
async def test_a_peer_that_hangs_up_at_once() -> None:
    async def rude(raw: RawPeer) -> None:
        raw.close()

    async with raw_server(rude) as address:
        with pytest.raises(LinkClosed):
            await connect(address)


@on_both_loops
async def test_a_peer_that_stops_answering() -> None:
    """Half-open: its machine is gone, or its process is stopped."""

    async def behave(raw: RawPeer) -> None:
        await welcome(raw)

    async with raw_server(behave) as address:
        link = await connect(address)
        tasks = [asyncio.create_task(link.fetch(fetch(wait_ms=10))) for _ in range(3)]
        for task in tasks:
            with pytest.raises(LinkClosed, match="no response for 0"):
                await task
        assert "no response" in await link.closed


@on_both_loops
async def test_a_slow_response_is_waited_for() -> None:
    """Longer than the time limit, but bytes arrive all the time."""

    async def behave(raw: RawPeer) -> None:
        await welcome(raw)
        request = await raw.frame()
        assert request is not None
        raw.writer.write(frame_head(Kind.FETCHED, request.correlation, encode(ReplicaFetched([told(20)])), 20))
        for _ in range(20):
            await asyncio.sleep(QUICK.silence_seconds / 10)
            raw.writer.write(b"x")

    async with raw_server(behave) as address:
        link = await connect(address)
        assert bytes((await link.fetch(fetch())).data(0)) == b"x" * 20
        link.close("done")


@on_both_loops
async def test_a_process_that_stood_still_reads_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time limits are over when it goes on, and the response comes a few turns of the loop later."""
    monkeypatch.setattr("cairnmq.broker.internal.link.LAST_CHANCE_SECONDS", 20)

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        time.sleep(2 * QUICK.silence_seconds)  # noqa: ASYNC251 - both ends stand still
        await asyncio.sleep(0.01)
        return Answer([told()])

    async with open_bench(serve) as bench:
        link = await bench.link(timing=QUICK)
        assert (await link.fetch(fetch())).journals == [told()]


@on_both_loops
async def test_a_response_that_ends_in_the_middle() -> None:
    async def behave(raw: RawPeer) -> None:
        await welcome(raw)
        request = await raw.frame()
        assert request is not None
        head = frame_head(Kind.FETCHED, request.correlation, encode(ReplicaFetched([told(1 << 20)])), 1 << 20)
        raw.writer.write(head + bytes(1000))
        await raw.writer.drain()
        raw.writer.close()

    async with raw_server(behave) as address:
        link = await connect(address)
        with pytest.raises(LinkClosed, match="closed by the other side"):
            await link.fetch(fetch())
        assert await link.closed == "closed by the other side"
        with pytest.raises(LinkClosed):
            await link.fetch(fetch())


@pytest.mark.parametrize(
    ("kind", "correlation", "header", "raw_bytes"),
    [
        (Kind.FETCHED, 1, encode(ReplicaFetched([told(2)])), 2 << 30),
        (Kind.FETCHED, 1, encode(ReplicaFetched([told(101)])), 101),
        (Kind.FETCHED, 1, encode(ReplicaFetched([told(5)])), 6),
        (Kind.FETCHED, 1, encode(ReplicaFetched([told(5)])), 0),
        (Kind.FETCHED, 2, encode(ReplicaFetched([])), 0),
        (Kind.FETCHED, 2, encode(ReplicaFetched([told(5)])), 5),
        (Kind.FETCHED, 1, b"\xc1", 0),
        (Kind.FAILED, 1, b"\xc1", 0),
        (Kind.HELLO, 1, b"", 0),
        (99, 1, b"", 5),
        (99, 1, b"", 0),
    ],
    ids=["2 GB", "more than asked", "more than told", "less than told", "not asked", "not asked bytes", "no message"]
    + ["no failure", "hello again", "unknown kind with bytes", "unknown kind"],
)
@on_both_loops
async def test_a_hostile_leader_is_left(kind: int, correlation: int, header: bytes, raw_bytes: int) -> None:
    told_why: list[Failed] = []

    async def behave(raw: RawPeer) -> None:
        await welcome(raw)
        await raw.frame()
        raw.writer.write(frame_head(kind, correlation, header, raw_bytes) + bytes(min(raw_bytes, 1000)))
        frame = await raw.frame()
        assert frame is not None and frame.kind == Kind.FAILED
        told_why.append(decode(Failed, frame.header))

    async with raw_server(behave) as address:
        link = await connect(address)
        with pytest.raises(LinkClosed):
            await link.fetch(fetch(max_bytes=100))
        await until(lambda: told_why)
        assert told_why[0].code == Failure.MALFORMED


@pytest.mark.parametrize("kind", [Kind.WELCOME, Kind.FETCHED, 99])
@on_both_loops
async def test_a_leader_that_skips_the_handshake(kind: int) -> None:
    async def behave(raw: RawPeer) -> None:
        raw.writer.write(frame_head(kind, 0, encode([1, b""])))
        await raw.frame()

    async with raw_server(behave) as address:
        with pytest.raises(LinkRefused) as caught:
            await connect(address)
        assert caught.value.code is Failure.MALFORMED


@on_both_loops
async def test_a_leader_that_fails_with_an_unknown_code() -> None:
    async def behave(raw: RawPeer) -> None:
        raw.writer.write(frame_head(Kind.FAILED, 0, encode(Failed(4711, "a later reason"))))

    async with raw_server(behave) as address:
        with pytest.raises(LinkRefused, match="a later reason") as caught:
            await connect(address)
        assert caught.value.code is Failure.INTERNAL


@on_both_loops
async def test_closing_fails_what_is_in_flight() -> None:
    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        await peer.park(50)
        return Answer()

    async with open_bench(serve) as bench:
        link = await bench.link()
        tasks = [asyncio.create_task(link.fetch(fetch(wait_ms=50_000))) for _ in range(4)]
        await asyncio.sleep(0)
        link.close("enough")
        for task in tasks:
            with pytest.raises(LinkClosed, match="enough"):
                await task
        assert await link.closed == "enough"
        await until(lambda: bench.listener.links() == [])


@on_both_loops
async def test_links_of_both_purposes_stand_side_by_side() -> None:
    async with open_bench() as bench:
        data, control = await bench.link(), await bench.link(purpose="control")
        assert (await data.fetch(fetch())).journals == [told()]
        assert not control.closed.done()
