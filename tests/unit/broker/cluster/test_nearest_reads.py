"""Which reads this broker serves as a follower, and where it sends readers as a leader."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster import nearest_reads
from cairnmq.broker.cluster.nearest_reads import SEND_AGAIN_MS, NearestReads, ask_again_ms
from cairnmq.broker.leadership import KnownBroker, Leadership
from cairnmq.errors import ErrorCode
from cairnmq.settings.broker import BrokerConfig, broker_config
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, B, C, Desk, Source, follows
from unit.broker.rig import scenario

LED_BY_B = replace(RECORD, leader=B)
LAG_MS = 2_000


class Bench:
    """Broker 1 in rack a; broker 2 is in rack b, broker 3 in none."""

    def __init__(self, desk: Desk, **settings: str) -> None:
        self.desk = desk
        texts = {"cairn.follower.read.max.lag.ms": str(LAG_MS)}
        config = broker_config(texts | {name.replace("_", "."): text for name, text in settings.items()})
        assert isinstance(config, BrokerConfig), config
        self.leadership = Leadership(1)
        racks = {1: "a", 2: "b", 3: None}
        self.leadership.know_brokers([KnownBroker(node, "h", node, rack) for node, rack in racks.items()], 1)
        self.nearest = NearestReads(
            {JOURNAL: desk.replica}, self.leadership, desk.cluster.view, lambda: config, lambda: desk.time_ms
        )

    async def hears(self, source: Source, *, replicated: int | None = None, after_ms: int = 0) -> None:
        """The follower asks, and all that the leader has arrives that much later."""
        follower = self.desk.copying.follower
        assert follower is not None
        asked = follower.position(now_ms=self.desk.time_ms)
        self.desk.time_ms += after_ms
        end = source.machine.end() if replicated is None else replicated
        reply = source.reply(replicated=end, durable=end)
        await self.desk.copying.replied(asked, reply, source.data(asked.end))


@scenario
async def test_a_follower_serves_what_it_has_heard_of() -> None:
    async with Desk() as desk:
        bench, source = Bench(desk), Source()
        nearest = bench.nearest
        assert nearest.refusal(JOURNAL) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert nearest.refusal(99) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        source.put(2)
        await follows(desk, source, LED_BY_B)
        assert nearest.refusal(JOURNAL) is ErrorCode.OFFSET_NOT_AVAILABLE
        assert nearest.refusal(JOURNAL, 21) is ErrorCode.OFFSET_NOT_AVAILABLE, "it may never hear of that epoch"
        assert nearest.refusal(JOURNAL, 19) is ErrorCode.FENCED_LEADER_EPOCH
        asked_ms = desk.time_ms
        await bench.hears(source, after_ms=700)
        assert nearest.refusal(JOURNAL) is nearest.refusal(JOURNAL, 20) is ErrorCode.NONE
        assert nearest.refusal(JOURNAL, 21) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert nearest.refusal(JOURNAL, 19) is ErrorCode.FENCED_LEADER_EPOCH
        assert nearest.has_all_of(JOURNAL, asked_ms) and not nearest.has_all_of(JOURNAL, asked_ms + 1)
        assert nearest.may_wait_ms(JOURNAL) == LAG_MS - 700 + 1
        desk.time_ms = asked_ms + LAG_MS
        assert nearest.refusal(JOURNAL) is ErrorCode.NONE
        desk.time_ms += 1
        assert nearest.refusal(JOURNAL) is ErrorCode.OFFSET_NOT_AVAILABLE and nearest.may_wait_ms(JOURNAL) == 1
        await bench.hears(source)
        assert nearest.refusal(JOURNAL) is ErrorCode.NONE
        await follows(desk, source, replace(LED_BY_B, epoch=21))
        assert nearest.refusal(JOURNAL) is ErrorCode.OFFSET_NOT_AVAILABLE, "another epoch"


@scenario
async def test_what_is_not_shown_yet_makes_it_late() -> None:
    """Entries of a queue that the metadata here do not know yet."""
    async with Desk() as desk:
        bench, source = Bench(desk), Source()
        await follows(desk, source, LED_BY_B)
        await bench.hears(source)
        assert bench.nearest.refusal(JOURNAL) is ErrorCode.NONE
        source.put()
        desk.time_ms += LAG_MS + 1
        await bench.hears(source, replicated=source.machine.end() + 1)
        assert bench.nearest.refusal(JOURNAL) is ErrorCode.OFFSET_NOT_AVAILABLE


@scenario
async def test_the_first_reader_wakes_the_follower() -> None:
    """From then on its leader is asked to tell of each step."""
    async with Desk() as desk:
        bench, source, woken = Bench(desk), Source(), []
        await follows(desk, source, LED_BY_B)
        await bench.hears(source)
        desk.copying.wake = lambda: woken.append(True)
        for _ in range(2):
            assert bench.nearest.refusal(JOURNAL) is ErrorCode.NONE
        assert len(woken) == 1
        assert desk.copying.follower is not None and desk.copying.follower.position(now_ms=desk.time_ms).has_readers


@scenario
async def test_a_leader_knows_who_may_be_read_from() -> None:
    async with Desk() as desk:
        bench = Bench(desk)
        assert bench.nearest.elsewhere(JOURNAL, "b") == []
        await desk.lead()
        assert bench.nearest.refusal(JOURNAL) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for follower in (B, C):
            desk.asked(follower)
        assert bench.nearest.elsewhere(JOURNAL, "b") == [2]
        assert bench.nearest.elsewhere(JOURNAL, "a") == bench.nearest.elsewhere(JOURNAL, "") == []
        assert bench.nearest.elsewhere(99, "b") == []
        desk.time_ms += LAG_MS // 2 + 1
        assert bench.nearest.elsewhere(JOURNAL, "b") == []


@scenario
async def test_a_client_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_reads, "SENT_MAX", 3)
    async with Desk() as desk:
        nearest = Bench(desk).nearest
        assert [nearest.sends(1, 7), nearest.sends(1, 7), nearest.sends(2, 7), nearest.sends(1, 8)] == [
            True,
            False,
            True,
            True,
        ]
        assert not nearest.sends(3, 7), "no more are remembered"
        assert nearest.sent_on == 3
        desk.time_ms += SEND_AGAIN_MS
        assert nearest.sends(3, 7) and nearest.sends(1, 7)


def test_how_often_a_follower_without_news_asks() -> None:
    def asks(usual_ms: int, rack: str | None = "a", **settings: str) -> int:
        config = broker_config({name.replace("_", "."): text for name, text in settings.items()})
        assert isinstance(config, BrokerConfig), config
        return ask_again_ms(config, rack, usual_ms)

    assert asks(500) == 500 and asks(500, cairn_follower_read_max_lag_ms="1000") == 250
    assert asks(100, cairn_follower_read_max_lag_ms="1000") == 100
    assert asks(500, cairn_follower_read_max_lag_ms="40") == 25
    short = {"cairn_follower_read_max_lag_ms": "40"}
    assert asks(500, replica_selector_class="", **short) == 500
    assert asks(500, None, **short) == 500, "nobody is told to read here"


@scenario
async def test_it_is_off_without_a_selector() -> None:
    async with Desk() as desk:
        assert Bench(desk).nearest.is_on and not Bench(desk, replica_selector_class="").nearest.is_on
        bench = Bench(desk)
        assert bench.nearest.is_rack("a") and not bench.nearest.is_rack("b")
        bench.leadership.know_brokers([KnownBroker(1, "h", 1)], 1)
        assert not bench.nearest.is_rack("a")
