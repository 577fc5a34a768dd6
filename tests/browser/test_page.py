"""The status page in a real browser: what survives a poll, what fits a phone, what can be read and sorted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from broker_process import Broker, wait_until
from browser.chromium import SECONDS, Chromium, Page
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from cairnmq.types import TopicPartition

NOW_MS = int(time.time() * 1000)  # what is older than a week is deleted
PHONE, DESK = 390, 1280
LONG = "a-team-with-a-long-name.and-a-service-with-a-longer-one.events.created.v"

numbers = count()


@pytest.fixture
def client(shared_broker: Broker) -> Iterator[Client]:
    with Client.connect(shared_broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"page-{next(numbers)}"
    client.create_topics([NewTopic(name, 1)])
    return name


def send(client: Client, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    client.produce(topic, 0, build_batch([Record(0, NOW_MS, key, value) for value in values]))


@pytest.fixture
def view(shared_broker: Broker, browser: Chromium) -> Iterator[Callable[..., Page]]:
    """Opens the page; in the end no script of it may have failed, and nothing may have been refused by its policy."""
    opened: list[Page] = []

    def open_at(path: str = "", width: int = DESK) -> Page:
        page = browser.open(f"{shared_broker.http}/#/{path}", width=width)
        page.wait("document.getElementById('state')?.textContent === 'ready'")
        opened.append(page)
        return page

    yield open_at
    assert [page.complaints() for page in opened] == [[]] * len(opened)


def row(name: str) -> str:
    """Script: the row of a topic or group by its name."""
    return f"[...document.querySelectorAll('tbody tr')].find(tr => tr.cells[0].innerText === {json.dumps(name)})"


def cells(table: str, column: int) -> str:
    """Script: what a column of a table says, from top to bottom."""
    return f"[...document.querySelectorAll('#{table} tbody tr')].map(tr => tr.cells[{column}].innerText)"


def test_focus_selection_and_scrolling_survive_a_poll(view: Callable[..., Page], client: Client, topic: str) -> None:
    send(client, topic, b"1")
    page = view()
    page.resize(DESK, 300)
    page.wait(f"{row(topic)}?.cells[2].innerText === '1'")
    page.ask(f"""{{
        const link = {row(topic)}.querySelector("a");
        link.focus();
        getSelection().selectAllChildren(link);
        scrollTo(0, 120);
        window.before = link;
    }}""")
    send(client, topic, b"2")
    page.wait(f"{row(topic)}.cells[2].innerText === '2'")
    assert page.ask("document.activeElement === before && before.isConnected")
    assert page.ask("getSelection().toString()") == topic
    assert page.ask("scrollY") == 120


def test_rows_keep_their_places_while_somebody_is_in_them(
    view: Callable[..., Page], client: Client, topic: str
) -> None:
    """Sorted by what changes, a row would jump away from under the finger."""
    other = f"{topic}-b"
    client.create_topics([NewTopic(other, 1)])
    send(client, topic, b"1")
    send(client, other, b"1", b"2")
    page = view()
    page.wait(f"{row(other)}?.cells[2].innerText === '2'")
    page.ask("document.querySelectorAll('#topics th button')[2].click()")
    mine = f"{cells('topics', 0)}.filter(name => name.startsWith({json.dumps(topic)}))"
    assert page.ask(mine) == [other, topic]
    page.ask(f"{row(topic)}.querySelector('a').focus()")
    send(client, topic, b"2", b"3", b"4")
    page.wait(f"{row(topic)}.cells[2].innerText === '4'")
    assert page.ask(mine) == [other, topic]
    page.ask("document.activeElement.blur()")
    page.wait(f"{mine}[0] === {json.dumps(topic)}")


def test_topics_are_sorted_as_people_count_and_by_every_column(
    view: Callable[..., Page], client: Client, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in (1, 2, 10)]
    client.create_topics([NewTopic(name, number) for number, name in enumerate(reversed(names), 1)])
    for number, name in enumerate(names):
        send(client, name, *[b"x"] * (1 + 100 * (number % 2)))
    page = view()
    mine = f"{cells('topics', 0)}.filter(name => name.startsWith({json.dumps(topic + '-')}))"
    page.wait(f"{mine}.length === 3 && {row(names[1])}.cells[2].innerText === '101'")
    assert page.ask(mine) == names
    page.ask("document.querySelectorAll('#topics th button')[0].focus()")
    page.key("Enter")
    assert page.ask(mine) == names[::-1]
    assert page.ask("document.querySelector('#topics th').ariaSort") == "descending"
    page.ask("document.querySelectorAll('#topics th button')[1].click()")
    assert page.ask(mine) == names, "the most partitions first"
    page.ask("document.querySelectorAll('#topics th button')[2].click()")
    assert page.ask(f"{mine}[0]") == names[1], "the most messages first"
    assert page.ask("[...document.querySelectorAll('#topics thead th')].map(th => th.ariaSort)") == [
        "none", "none", "descending", "none", "none",
    ]  # fmt: skip


def test_a_topic_page_shows_what_was_produced(view: Callable[..., Page], client: Client, topic: str) -> None:
    send(client, topic, b"the first", key=b"its key")
    page = view(f"topics/{topic}")
    page.wait(f"{cells('messages', 4)}.join() === 'the first'")
    assert page.ask(cells("messages", 3)) == ["its key"]
    send(client, topic, b"<img src=x onerror=document.title=1>", b"\xff\x00", None)
    page.wait(f"{cells('messages', 4)}.length === 4")
    assert page.ask(cells("messages", 4)) == ["null", "ff 00", "<img src=x onerror=document.title=1>", "the first"]
    assert page.ask("document.title") == f"{topic} · CairnMQ"
    assert page.ask("document.querySelectorAll('#messages img').length") == 0
    assert page.ask(cells("partitions", 2)) == ["4"]


def test_a_message_that_is_open_stays_where_it_is(view: Callable[..., Page], client: Client, topic: str) -> None:
    send(client, topic, b'{"id": 12345678901234567890, "list": [1, {}]}')
    page = view(f"topics/{topic}")
    page.wait("document.querySelector('#messages button.opens')")
    page.ask("document.querySelector('#messages button.opens').click()")
    assert page.ask("document.querySelector('#messages pre').innerText") == (
        '{\n  "id": 12345678901234567890,\n  "list": [\n    1,\n    {}\n  ]\n}'
    )
    send(client, topic, b"another")
    page.wait("document.querySelector('#topic-tiles b').innerText === '2'")
    assert page.ask("document.querySelectorAll('#messages button.opens').length") == 1
    assert page.ask("document.querySelector('#message-pause').innerText") == "Resume"
    page.ask("document.querySelector('#message-pause').click()")
    page.wait("document.querySelectorAll('#messages button.opens').length === 2")
    assert page.ask("document.querySelectorAll('#messages pre').length") == 1


def test_messages_of_one_partition(view: Callable[..., Page], client: Client, topic: str) -> None:
    client.create_partitions(topic, 3)
    for partition in range(3):
        client.produce(topic, partition, build_batch([Record(0, NOW_MS, None, b"in %d" % partition)]))
    page = view(f"topics/{topic}")
    page.wait(f"{cells('messages', 4)}.length === 3")
    page.ask("""{ const input = document.getElementById("message-partition");
        input.value = "1"; input.dispatchEvent(new Event("input")); }""")
    page.wait(f"{cells('messages', 4)}.join() === 'in 1'")


def test_settings_of_a_topic(view: Callable[..., Page], client: Client, topic: str) -> None:
    name = f"{topic}-set"
    client.create_topics([NewTopic(name, 1, configs={"retention.ms": "1234567"})])
    page = view(f"topics/{name}")
    page.wait(f"{cells('settings', 0)}.length === 1")
    assert page.ask(f"[{cells('settings', 0)}, {cells('settings', 1)}].flat()") == ["retention.ms", "1234567"]
    assert page.ask("document.querySelectorAll('#default-settings tbody tr').length") > 20


def test_a_group_and_where_it_is(view: Callable[..., Page], client: Client, topic: str) -> None:
    send(client, topic, b"1", b"2", b"3")
    group = f"group of {topic}"
    client.offset_commit(group, {TopicPartition(topic, 0): 1})
    page = view()
    page.wait(row(group))
    page.ask(f"{row(group)}.querySelector('a').click()")
    page.wait("document.querySelector('#group-name').innerText.startsWith('group of')")
    page.wait(f"{cells('offsets', 4)}.join() === '2'")
    assert page.ask("location.hash") == f"#/groups/{group.replace(' ', '%20')}"
    assert page.ask("document.querySelector('#members').innerText") == "This group has no members at the moment."
    page.ask("document.querySelector('#offsets a').click()")
    page.wait(f"{cells('topic-groups', 0)}.join() === {json.dumps(group)}")
    page.ask("history.back()")
    page.wait("!document.getElementById('group').hidden")


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_a_link_to_what_does_not_exist(view: Callable[..., Page], kind: str) -> None:
    page = view(f"{kind}s/nobody%20has%2Fmade%20it")
    page.wait(f"document.getElementById('{kind}-missing').innerText === 'There is no {kind} “nobody has/made it”.'")
    assert page.ask(f"document.getElementById('{kind}-content').hidden")


def overflow(page: Page) -> list[str]:
    """What reaches beyond the right side of the window, or is cut off."""
    found: list[str] = page.ask("""[...document.querySelectorAll("main:not([hidden]) *, header *")].filter(element =>
        element.getClientRects().length && !element.closest(".unseen, svg, thead")
        && (element.getBoundingClientRect().right > innerWidth + 0.5 || (element.matches("table, .card, .tile, td, th")
            && !element.matches(".messages td") && element.scrollWidth > element.clientWidth + 1)))
        .map(element => element.outerHTML.slice(0, 100))""")
    wider = page.ask("document.documentElement.scrollWidth - innerWidth")
    return [*found, *([f"the page is {wider} px wider than the window"] if wider > 0 else [])]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_cut_off(view: Callable[..., Page], client: Client, topic: str, width: int) -> None:
    name = f"{LONG}{next(numbers)}"
    group = f"group.{name}"
    client.create_topics([NewTopic(name, 1, configs={"retention.ms": "9223372036854775807"})])
    send(client, name, *[b"v" * 3000] * 3, key=b"k" * 500)
    client.offset_commit(group, {TopicPartition(name, 0): 1})
    page = view(width=width)
    page.wait(row(name))
    assert overflow(page) == []
    page = view(f"topics/{name}", width=width)
    page.wait("document.querySelector('#messages button.opens')")
    page.ask("document.querySelector('#messages button.opens').click()")
    page.wait(f"{cells('topic-groups', 0)}.length === 1 && {cells('settings', 0)}.length === 1")
    assert overflow(page) == []
    page = view(f"groups/{group}", width=width)
    page.wait(f"{cells('offsets', 0)}.length === 1")
    assert overflow(page) == []


def test_lag_is_marked_only_while_it_grows(view: Callable[..., Page]) -> None:
    grows = """(async values => {
        const { Levels } = await import("/history.js");
        const levels = new Levels();
        values.forEach((value, second) => levels.see("group", value, second));
        return levels.grows("group");
    })"""
    page = view()
    assert page.ask(f"{grows}([0, 3, 5, 9, 12, 20, 21, 22, 30, 31])")
    assert not page.ask(f"{grows}([5, 4, 6, 5, 3, 6, 5, 4, 6, 5])"), "a consumer that keeps up is never at 0"
    assert not page.ask(f"{grows}([90, 80, 70, 60, 50, 40, 30, 20, 10, 0])")
    assert not page.ask(f"{grows}([500, 500, 500, 500, 500, 500, 500, 500, 500, 500])")
    assert not page.ask(f"{grows}([1, 2, 3, 4])"), "too early to tell"


def test_what_the_page_remembers_is_bounded(view: Callable[..., Page]) -> None:
    page = view()
    kept = page.ask("""(async () => {
        const { Rates } = await import("/history.js");
        const rates = new Rates();
        for (let topic = 0; topic < 5000; topic++) rates.see(`t-${topic}`, 0, 1);
        for (let second = 2; second < 300; second++) rates.see("t-4999", 10 * second, second);
        rates.see("t-4999", 5, 300);
        const anew = rates.values("t-4999").length;
        for (let second = 301; second < 500; second++) rates.see("t-4999", 10 * second, second);
        return [rates.kept.size, anew, rates.values("t-4999").length, rates.now("t-4999")];
    })()""")
    assert kept == [2000, 0, 60, 10]


def test_very_many_topics_are_shown_piece_by_piece_and_filtered(
    make_broker: Callable[..., Broker], browser: Chromium
) -> None:
    broker = make_broker().start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic(f"team-{number}", 1) for number in range(1, 301)])
    page = browser.open(f"{broker.http}/")
    page.wait(f"{cells('topics', 0)}.length === 100")
    assert page.ask(f"{cells('topics', 0)}.slice(0, 3)") == ["team-1", "team-2", "team-3"]
    page.ask("document.querySelector('#topics .more').click()")
    assert page.ask(f"{cells('topics', 0)}.length") == 200
    page.ask("""{ const input = document.getElementById("topic-filter");
        input.value = "TEAM-29"; input.dispatchEvent(new Event("input")); }""")
    assert page.ask(cells("topics", 0)) == ["team-29", *[f"team-29{number}" for number in range(10)]]
    assert page.complaints() == []


def test_an_empty_broker_says_what_to_type_and_a_broker_that_is_gone_that_it_is(
    make_broker: Callable[..., Broker], browser: Chromium
) -> None:
    broker = make_broker().start()
    page = browser.open(f"{broker.http}/")
    page.wait("document.querySelectorAll('#topics code').length === 2")
    assert page.ask("document.querySelector('#topics code').innerText") == (
        f"cairn topic create -b {broker.bootstrap} -p 3 orders"
    )
    assert f"cairn consume -b {broker.bootstrap} -g billing -o start orders" in page.text()
    broker.stop()
    page.wait("document.getElementById('state').innerText === 'not reachable'")
    assert page.ask("document.body.classList.contains('stale')")
    assert page.complaints() == []


def test_the_rate_of_traffic_is_not_zero_at_the_first_poll(
    view: Callable[..., Page], client: Client, topic: str, browser: Chromium, shared_broker: Broker
) -> None:
    """It was until the second one."""
    page = view()

    def moves() -> bool:
        send(client, topic, b"x" * 100_000)
        told = page.ask("fetch('/api/v1/broker').then(response => response.json())")
        return bool(told["bytes_in_per_second"] > 0)

    wait_until(moves, SECONDS, "traffic; the broker looks every other second")
    fresh = browser.open(f"{shared_broker.http}/")
    assert fresh.wait("document.querySelector('#tiles b')?.innerText") != "0 B/s"


def test_tables_are_tables_and_dark_is_dark(view: Callable[..., Page], topic: str) -> None:
    page = view()
    page.wait(row(topic))
    assert page.ask("document.querySelector('#topics caption').textContent").startswith("Topics")
    assert page.ask("[...document.querySelectorAll('#topics thead th')].every(th => th.scope === 'col')")
    assert page.ask(f"{row(topic)}.cells[0].scope") == "row"
    assert page.ask("document.getElementById('state').ariaLive") == "polite"
    light = page.ask("getComputedStyle(document.body).backgroundColor")
    page.prefer(dark=True)
    assert page.ask("getComputedStyle(document.body).backgroundColor") != light
