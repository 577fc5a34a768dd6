"""What a leader does with what arrives on a link: order, superseding, later links, hostile peers."""

from __future__ import annotations

import asyncio

import pytest

from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.link import LinkClosed, RequestFailed
from cairnmq.broker.internal.peer import Parked, Peer
from cairnmq.wire.internal import (
    CONTROL,
    CONTROL_IN_FLIGHT_MAX,
    DATA,
    Failed,
    Failure,
    Hello,
    Kind,
    ReplicaFetch,
    ReplicaFetched,
    decode,
    encode,
    frame_head,
)
from cairnmq.wire.internal_handshake import Connecting, LinkRefused
from cairnmq.wire.internal_transactions import ControlRequest, ControlResponse, Enter, Entered
from unit.broker.internal.link_rig import (
    FOLLOWER,
    HASTY,
    SECRET,
    Bench,
    RawPeer,
    ask,
    fetch,
    on_both_loops,
    open_bench,
    told,
)
from unit.broker.rig import until


class Parking:
    """Serves by waiting, and keeps what it saw. `release` lets waiting requests respond with bytes."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[tuple[int, Parked]] = []
        self.peers: list[Peer] = []

    async def serve(self, peer: Peer, request: ReplicaFetch) -> Answer:
        end = request.journals[0].end
        self.started.append(end)
        self.peers.append(peer)
        why = await peer.park(request.wait_ms / 1000)
        self.ended.append((end, why))
        return Answer([told(1)], [[memoryview(bytes([end]))]]) if why is Parked.WOKEN else Answer()


async def shake_hands(bench: Bench, number: int = 1, purpose: str = DATA) -> RawPeer:
    raw = await RawPeer.connect(bench.address)
    here = Connecting(FOLLOWER, None, number, purpose, bytes(32))
    raw.writer.write(frame_head(Kind.HELLO, 0, here.hello))
    hello = await raw.frame()
    assert hello is not None and hello.kind == Kind.HELLO
    raw.writer.write(frame_head(Kind.PROVE, 0, here.greeted(hello.header)))
    welcome = await raw.frame()
    assert welcome is not None and here.welcomed(welcome.header).broker == 1
    return raw


async def refused(raw: RawPeer) -> Failed:
    """Why the link ends; and it does."""
    frame = await raw.frame()
    assert frame is not None and (frame.kind, frame.correlation) == (Kind.FAILED, 0)
    assert await raw.frame() is None
    raw.close()
    return decode(Failed, frame.header)


@on_both_loops
async def test_a_later_request_completes_the_parked_one() -> None:
    parking = Parking()
    async with open_bench(parking.serve) as bench:
        link = await bench.link()
        first = asyncio.create_task(link.fetch(fetch(ask(end=1), wait_ms=50_000)))
        await until(lambda: parking.started == [1])
        second = asyncio.create_task(link.fetch(fetch(ask(end=2), wait_ms=50_000)))
        assert (await first).journals == []
        await until(lambda: parking.started == [1, 2])
        assert parking.ended == [(1, Parked.SUPERSEDED)]
        parking.peers[-1].wake()
        assert bytes((await second).data(0)) == b"\x02"


@on_both_loops
async def test_two_that_arrive_at_once_are_served_in_order() -> None:
    parking = Parking()
    async with open_bench(parking.serve) as bench:
        raw = await shake_hands(bench)
        both = [frame_head(Kind.FETCH, end, encode(fetch(ask(end=end), wait_ms=50_000))) for end in (1, 2)]
        raw.writer.write(b"".join(both))
        frame = await raw.frame()
        assert frame is not None and frame.correlation == 1
        assert decode(ReplicaFetched, frame.header).journals == []
        await until(lambda: parking.started == [1, 2])
        raw.close()


@on_both_loops
async def test_a_request_waits_no_longer_than_it_wants() -> None:
    parking = Parking()
    async with open_bench(parking.serve) as bench:
        link = await bench.link()
        assert (await link.fetch(fetch(wait_ms=5))).journals == []
        assert parking.ended == [(0, Parked.TIMED_OUT)]


@on_both_loops
async def test_a_later_link_drops_what_was_not_started() -> None:
    """R26: the first request is being served, the second waits behind it and never starts."""
    starts: list[int] = []
    go_on = asyncio.Event()

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        starts.append(request.journals[0].end)
        if request.journals[0].end == 1:
            await go_on.wait()
        return Answer([told()])

    async with open_bench(serve) as bench:
        old = await bench.link(number=1)
        lost = [asyncio.create_task(old.fetch(fetch(ask(end=end)))) for end in (1, 2)]
        await until(lambda: starts == [1])
        new = await bench.link(number=2)
        assert await old.closed == "closed by the other side: replaced by a later link"
        for task in lost:
            with pytest.raises(LinkClosed):
                await task
        assert (await new.fetch(fetch(ask(end=3)))).journals == [told()]
        go_on.set()
        assert (await new.fetch(fetch(ask(end=4)))).journals == [told()]
        assert starts == [1, 3, 4]


@on_both_loops
async def test_the_wait_of_a_replaced_link_ends() -> None:
    parking = Parking()
    async with open_bench(parking.serve) as bench:
        old = await bench.link(number=1)
        lost = asyncio.create_task(old.fetch(fetch(ask(end=1), wait_ms=50_000)))
        await until(lambda: parking.started == [1])
        await bench.link(number=2)
        await until(lambda: parking.ended == [(1, Parked.SUPERSEDED)])
        with pytest.raises(LinkClosed):
            await lost


@on_both_loops
async def test_an_older_link_is_refused() -> None:
    async with open_bench() as bench:
        new = await bench.link(number=5)
        with pytest.raises(LinkRefused, match="link 5 of broker 2 is older") as caught:
            await bench.link(number=5)
        assert caught.value.code is Failure.OLDER_LINK
        await new.fetch(fetch())
        assert bench.listener.links() == [2]


@on_both_loops
async def test_a_stranger_closes_no_link() -> None:
    """A number counts once it is proved who says it."""
    async with open_bench(secret=SECRET) as bench:
        link = await bench.link(number=1, secret=SECRET)
        with pytest.raises(LinkRefused, match="another cairn.cluster.secret"):
            await bench.link(number=9, secret=b"wrong but long enough")
        assert (await link.fetch(fetch())).journals == [told()]


@on_both_loops
async def test_a_request_that_fails_leaves_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        if request.max_bytes == 1:
            raise OSError("no such journal")
        size = 2 if request.max_bytes == 2 else 0
        return Answer([told(size)], [[memoryview(b"abcd")]] if request.max_bytes < 4 else [])

    async with open_bench(serve) as bench:
        link = await bench.link()
        for max_bytes, text in ((1, "OSError: no such journal"), (2, "ValueError: the sizes told are")):
            with pytest.raises(RequestFailed, match=text) as caught:
                await link.fetch(fetch(max_bytes=max_bytes))
            assert caught.value.code == Failure.INTERNAL
        assert (await link.fetch(fetch())).journals == [told()]
    assert "fetch of broker 2 failed" in caplog.text


@on_both_loops
async def test_a_control_link_serves_nothing_yet() -> None:
    async with open_bench() as bench:
        data, control = await bench.link(), await bench.link(purpose=CONTROL)
        with pytest.raises(RequestFailed, match="kind 16 are not served on a control link"):
            await control.fetch(fetch())
        assert (await data.fetch(fetch())).journals == [told()]


@on_both_loops
async def test_an_unknown_kind_is_told() -> None:
    async with open_bench() as bench:
        raw = await shake_hands(bench)
        raw.writer.write(frame_head(99, 7, b"whatever"))
        frame = await raw.frame()
        assert frame is not None and (frame.kind, frame.correlation) == (Kind.FAILED, 7)
        assert decode(Failed, frame.header).code == Failure.UNKNOWN_KIND
        raw.writer.write(frame_head(Kind.FETCH, 8, encode(fetch())))
        frame = await raw.frame()
        assert frame is not None and (frame.kind, frame.correlation) == (Kind.FETCHED, 8)
        raw.close()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ((2 << 30).to_bytes(4, "big") + b"\x10" + bytes(4) + b"\x00\x00\x00\x08", Failure.MALFORMED),
        (b"\x7f\xff\xff\xff\x10" + bytes(4) + b"\x7f\xff\xff\xf6", Failure.MALFORMED),
        (frame_head(Kind.FETCH, 1, b"\xc1"), Failure.MALFORMED),
        (frame_head(Kind.FETCH, 1, encode(fetch(ask(follower=3)))), Failure.OTHER_BROKER),
        (bytes(13), Failure.MALFORMED),
    ],
    ids=["raw bytes", "header", "no message", "another broker", "zeros"],
)
@on_both_loops
async def test_a_hostile_follower_is_cut_off(data: bytes, code: Failure) -> None:
    async with open_bench() as bench:
        raw = await shake_hands(bench)
        raw.writer.write(data)
        assert (await refused(raw)).code == code


@on_both_loops
async def test_too_many_requests_end_the_link() -> None:
    parking = Parking()
    async with open_bench(parking.serve) as bench:
        raw = await shake_hands(bench)
        raw.writer.write(frame_head(Kind.FETCH, 1, encode(fetch(wait_ms=50_000))) * 3)
        assert (await refused(raw)).code == Failure.TOO_MANY_REQUESTS


@on_both_loops
async def test_responses_that_are_not_read_count() -> None:
    """Or a follower that only asks would make its leader hold files open without end."""
    served: list[Peer] = []
    size = 64 << 20

    async def serve(peer: Peer, request: ReplicaFetch) -> Answer:
        served.append(peer)
        return Answer([told(size)], [[memoryview(bytes(size))]])

    async with open_bench(serve) as bench:
        raw = await shake_hands(bench)
        raw.writer.transport.pause_reading()
        for number in (1, 2, 3):
            raw.writer.write(frame_head(Kind.FETCH, number, encode(fetch(max_bytes=size))))
            await until(lambda number=number: len(served) == number or not bench.listener.links())
        assert bench.listener.links() == [] and len(served) == 2
        raw.close()


@pytest.mark.parametrize(
    "data",
    [
        frame_head(Kind.FETCH, 1, encode(fetch())),
        frame_head(Kind.PROVE, 1, b"\x90"),
        frame_head(Kind.HELLO, 1, b"\x90"),
        frame_head(Kind.HELLO, 1, bytes(4097)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303") + bytes(100),
    ],
    ids=["fetch first", "proof first", "no hello", "large hello", "http", "tls"],
)
@on_both_loops
async def test_a_stranger_is_cut_off(data: bytes) -> None:
    async with open_bench() as bench:
        raw = await RawPeer.connect(bench.address)
        raw.writer.write(data)
        frame = await raw.frame()
        assert frame is None or decode(Failed, frame.header).code == Failure.MALFORMED
        assert frame is None or await raw.frame() is None
        raw.close()
        assert (await (await bench.link()).fetch(fetch())).journals == [told()]


@on_both_loops
async def test_who_says_nothing_is_cut_off() -> None:
    async with open_bench(timing=HASTY) as bench:
        silent, half = await RawPeer.connect(bench.address), await RawPeer.connect(bench.address)
        half.writer.write(frame_head(Kind.HELLO, 0, Connecting(FOLLOWER, None, 1, DATA, bytes(32)).hello))
        assert (await refused(silent)).text == "no handshake within 0.2 s"
        hello = await half.frame()
        assert hello is not None and decode(Hello, hello.header).broker == 1
        assert (await refused(half)).text == "no handshake within 0.2 s"


@on_both_loops
async def test_a_follower_that_is_silent_later_is_kept() -> None:
    """It may have nothing to ask; the system's probes tell whether it is alive."""
    async with open_bench(timing=HASTY) as bench:
        link = await bench.link(timing=HASTY)
        await asyncio.sleep(2 * HASTY.hello_seconds)
        assert (await link.fetch(fetch())).journals == [told()]


class Questions:
    """Serves requests for control: each waits until the test lets it go on."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.peers: list[Peer] = []
        self.going: dict[str, asyncio.Event] = {}

    async def serve(self, peer: Peer, request: ControlRequest) -> ControlResponse:
        assert isinstance(request, Enter)
        name = request.transactional_id
        self.started.append(name)
        self.peers.append(peer)
        await self.going.setdefault(name, asyncio.Event()).wait()
        if name == "bad":
            raise ValueError("no idea")
        return Entered(0, len(self.started))

    def let(self, *names: str) -> None:
        for name in names:
            self.going.setdefault(name, asyncio.Event()).set()


@on_both_loops
async def test_questions_begin_in_order_and_are_answered_when_they_are_done() -> None:
    questions = Questions()
    async with open_bench(control=questions.serve) as bench:
        link = await bench.link(purpose=CONTROL)
        several = [asyncio.ensure_future(link.ask(Enter(name, 1, 0, True))) for name in ("a", "b", "c")]
        await until(lambda: len(questions.started) == 3)
        assert questions.started == ["a", "b", "c"]
        questions.let("b")
        assert await several[1] == Entered(0, 3) and not several[0].done()
        questions.let("a", "c")
        assert await several[0] == await several[2] == Entered(0, 3)


@on_both_loops
async def test_one_more_than_may_be_in_flight_waits() -> None:
    questions = Questions()
    names = [str(number) for number in range(CONTROL_IN_FLIGHT_MAX + 5)]
    async with open_bench(control=questions.serve) as bench:
        link = await bench.link(purpose=CONTROL)
        several = [asyncio.ensure_future(link.ask(Enter(name, 1, 0, True))) for name in names]
        await until(lambda: len(questions.started) == CONTROL_IN_FLIGHT_MAX)
        questions.let(*names)
        await asyncio.gather(*several)
        assert questions.started == names


@on_both_loops
async def test_a_question_that_fails_leaves_the_link() -> None:
    questions = Questions()
    questions.let("bad", "good")
    async with open_bench(control=questions.serve) as bench:
        link = await bench.link(purpose=CONTROL)
        with pytest.raises(RequestFailed, match="ValueError: no idea"):
            await link.ask(Enter("bad", 1, 0, True))
        assert await link.ask(Enter("good", 1, 0, True)) == Entered(0, 2)


@on_both_loops
async def test_a_later_link_drops_questions_and_those_that_wait_know() -> None:
    questions = Questions()
    async with open_bench(control=questions.serve) as bench:
        first = await bench.link(purpose=CONTROL)
        asked = asyncio.ensure_future(first.ask(Enter("a", 1, 0, True)))
        await until(lambda: questions.started == ["a"])
        second = await bench.link(2, purpose=CONTROL)
        with pytest.raises(LinkClosed):
            await asked
        assert questions.peers[0].is_gone
        again = asyncio.ensure_future(second.ask(Enter("a", 1, 0, True)))
        await until(lambda: len(questions.started) == 2)
        assert not questions.peers[1].is_gone
        questions.let("a")
        assert (await again).error == 0


@on_both_loops
async def test_questions_are_for_control_links_only() -> None:
    questions = Questions()
    async with open_bench(control=questions.serve) as bench:
        link = await bench.link(purpose=DATA)
        with pytest.raises(RequestFailed, match="not served on a data link"):
            await link.ask(Enter("a", 1, 0, True))
    async with open_bench() as bench:
        link = await bench.link(purpose=CONTROL)
        with pytest.raises(RequestFailed, match="not served on a control link"):
            await link.ask(Enter("a", 1, 0, True))


@on_both_loops
async def test_a_malformed_question_ends_the_link() -> None:
    questions = Questions()
    async with open_bench(control=questions.serve) as bench:
        raw = await shake_hands(bench, purpose=CONTROL)
        raw.writer.write(frame_head(Kind.ENTER, 1, b"\xc1"))
        assert (await refused(raw)).code == Failure.MALFORMED
        raw.close()
