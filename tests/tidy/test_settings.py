"""docs/settings.md is made from the tables of settings; pages name only settings and metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairnmq.broker.metric_table import METRICS
from cairnmq.settings.broker_table import ALIASES, BROKER, FORMER_NAMES
from cairnmq.settings.definition import ConfigType, Setting
from cairnmq.settings.group import GROUP
from cairnmq.settings.topic_table import TOPIC
from tidy.tree import ROOT, tool

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = re.compile(r"`((?:cairn|log)\.[a-z]+(?:\.[a-z]+)*)`")


def test_page_is_current() -> None:
    """`python tools/generate_settings.py` makes it."""
    assert (ROOT / "docs" / "settings.md").read_text() == tool("generate_settings").page()


def test_every_setting_is_on_the_page() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = [*BROKER.values(), *(row.setting for row in TOPIC.values()), *GROUP.values()]
    names = {setting.name for setting in rows if not setting.hidden} | set(ALIASES)
    assert {name for name in names if f"`{name}`" not in page} == set()


def unknown(text: str) -> set[str]:
    return set(OURS.findall(text)) - {*BROKER, *TOPIC, *ALIASES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_settings_of_pages_exist(page: Path) -> None:
    """Under today's names; only the reference lists former ones."""
    former = set(FORMER_NAMES) if page.name == "settings.md" else set()
    assert unknown(page.read_text()) - former == set()


def test_a_setting_that_does_not_exist_is_found() -> None:
    assert unknown("`cairn.flush`, `cairn.fluhs`, `log.dir`, `log.txt`, `segment.bytes`") == {"cairn.fluhs", "log.txt"}


METRIC = re.compile(r"`(cairn_[a-z_]+)`")
FIXTURES = {"cairn_broker", "cairn_topic", "cairn_settings"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_metrics_of_pages_exist(page: Path) -> None:
    assert set(METRIC.findall(page.read_text())) - set(METRICS) - FIXTURES == set()


def test_how_defaults_and_values_are_shown() -> None:
    made = tool("generate_settings")
    size = Setting(name="a.bytes", type=ConfigType.LONG, default="1048576", doc="", low=1)
    time = Setting(name="a.ms", type=ConfigType.LONG, default="3600000", doc="", low=-1, high=9)
    assert (made.default_of(size), made.values_of(size)) == ("1048576 (1 MiB)", "at least 1")
    assert (made.default_of(time), made.values_of(time)) == ("3600000 (1 hour)", "-1 to 9")
