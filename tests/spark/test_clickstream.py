"""The walk-through of docs/pipeline.md does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_process import CAIRN, Broker
from interop.clients.librdkafka import LibrdkafkaClient
from programs import require_program
from spark.session_process import NOTEBOOK

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "clickstream.py"
MINUTE_MS = 60_000


def run(*line: str) -> str:
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def loaded() -> Any:
    spec = util.spec_from_file_location("clickstream", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def closed_windows(kafka: LibrdkafkaClient) -> Counter[tuple[int, str]]:
    """What must have been counted: windows that ended a minute before the last click."""
    clicks = kafka.read("clicks", range(3))
    ended = max(each.timestamp for each in clicks) - MINUTE_MS
    found = Counter[tuple[int, str]]()
    for each in clicks:
        minute = each.timestamp // MINUTE_MS
        if (minute + 1) * MINUTE_MS <= ended:
            found[minute * 60, json.loads(each.value or b"")["page"]] += 1
    return found


def counted(kafka: LibrdkafkaClient) -> dict[tuple[int, str], int]:
    rows = [json.loads(each.value or b"") for each in kafka.read("clicks-by-minute", range(2))]
    found = {(row["minute"], row["page"]): row["clicks"] for row in rows}
    assert len(found) == len(rows), "no window comes twice"
    return found


def test_clicks_are_counted_and_shown(
    spark: SparkSession,
    shared_broker: Broker,
    kafka: LibrdkafkaClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap, place = shared_broker.bootstrap, str(tmp_path / "counts")
    example = (sys.executable, str(EXAMPLE), bootstrap)

    def lag() -> int:
        (found,) = json.loads(run(CAIRN, "group", "describe", "clickstream", "-b", bootstrap, "--json"))
        return int(found["lag"])

    run(CAIRN, "topic", "create", "clicks", "-p", "3", "-b", bootstrap)
    run(CAIRN, "topic", "create", "clicks-by-minute", "-p", "2", "-b", bootstrap)
    run(*example, "click", "600", "3600")
    monkeypatch.setattr(sys, "argv", ["clickstream.py", bootstrap, "count", place])
    loaded().main()  # it gets the session that is there: another one takes long to start
    first = closed_windows(kafka)
    assert first and counted(kafka) == first
    assert lag() == 0
    run(*example, "click", "900", "2400")
    assert lag() == 900
    loaded().main()
    assert lag() == 0
    both = closed_windows(kafka)
    assert len(both) > len(first) and counted(kafka) == both
    picture = str(tmp_path / "clicks.png")
    lines = run(*example, "plot", picture).splitlines()  # matplotlib is not among our packages
    bars = [re.fullmatch(r"\d\d:\d\d (#*) +(\d+)", line) for line in lines]
    assert sum(int(bar[2]) for bar in bars if bar) == both.total()
    run(require_program(NOTEBOOK), *example[1:], "plot", picture)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")


def test_quotes_are_from_the_example() -> None:
    (quote,) = re.findall(r"```python\n( +clicks = .*?)```", (DOCS / "pipeline.md").read_text(), re.DOTALL)
    assert quote in EXAMPLE.read_text()
