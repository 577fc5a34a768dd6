"""Makes docs/settings.md from the tables of settings. Run it after a change there: `python tools/generate_settings.py`;
a test fails if the page is not current."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cairnmq.settings.broker_table import ALIASES, BROKER, FORMER_NAMES, IN_CLUSTER
from cairnmq.settings.definition import INT32_MAX, INT64_MAX, Setting
from cairnmq.settings.group import GROUP
from cairnmq.settings.topic_table import TOPIC

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Settings

<!-- Made by tools/generate_settings.py from the tables in src/cairnmq/settings. Change them there. -->

Every setting of brokers, topics and groups. Names and meanings are Kafka's; `cairn.` begins the names that exist only
here. [Operating](operating.md#settings-that-matter) says how to set them and which of them matter most.
[Memory](memory.md) explains those that limit memory.

A broker setting without *run time* needs a restart. `cairn config set` changes the others while the broker runs.
Settings of topics and groups can always be changed, with `cairn topic alter` or a client.
"""
OTHER_NAMES = ALIASES | FORMER_NAMES
DEFAULTS = "Default of the topic setting"

_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_TIMES = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


def default_of_broker(setting: Setting) -> str:
    """Also that of a cluster, where it is another one."""
    default, there = default_of(setting), default_of(IN_CLUSTER[setting.name])
    return default if default == there else f"{default}; in a cluster {there}"


def default_of(setting: Setting) -> str:
    """The default as a person reads it: `1073741824 (1 GiB)`."""
    text = setting.default
    if not text:
        return ""
    if text in (str(INT64_MAX), str(INT32_MAX)):
        return f"{text} (no limit)"
    units = _SIZES if ".bytes" in setting.name else _TIMES if setting.name.endswith(".ms") else ()
    for size, unit in units:
        if text.isdecimal() and int(text) and int(text) % size == 0:
            count = int(text) // size
            return f"{text} ({count} {unit.rstrip('s') if count == 1 else unit})"
    return text


def values_of(setting: Setting) -> str:
    """What is allowed: choices, bounds, or the one value that is supported so far."""
    if setting.limit is not None and _nothing_else(setting, setting.limit):
        if not setting.default:
            return "not supported yet"
        return "the default, or empty" if setting.limit("") is None else "only the default"
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    low, high = (None if bound is None else f"{bound:.10g}" for bound in (setting.low, setting.high))
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}" if high else ""


def _nothing_else(setting: Setting, limit: Callable[..., str | None]) -> bool:
    """Whether the limit refuses all samples of other values."""
    samples: list[object] = [*setting.choices] or [True, 1, 2, 5, "text", "a text of some length", ("item",)]
    return all(limit(sample) is not None for sample in samples if str(sample).lower() != setting.default)


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


def broker_table(chosen: Callable[[Setting], bool]) -> str:
    rows = (
        (
            f"`{row.name}`",
            row.type.name.lower(),
            default_of_broker(row),
            values_of(row),
            "yes" if row.dynamic else "",
            row.doc,
        )
        for row in sorted(BROKER.values(), key=lambda row: row.name)
        if not row.hidden and chosen(row)
    )
    return table(("setting", "type", "default", "values", "run time", "meaning"), rows)


def topic_table() -> str:
    rows = (
        (
            f"`{row.setting.name}`",
            row.setting.type.name.lower(),
            default_of(row.setting),
            values_of(row.setting),
            ", ".join(f"`{name.name}`" for name in row.broker_names),
            row.setting.doc,
        )
        for row in TOPIC.values()
        if not row.setting.hidden
    )
    return table(("setting", "type", "default", "values", "broker setting with its default", "meaning"), rows)


def group_table() -> str:
    rows = (
        (f"`{row.name}`", row.type.name.lower(), default_of(row), values_of(row), row.doc) for row in GROUP.values()
    )
    return table(("setting", "type", "default", "values", "meaning"), rows)


def page() -> str:
    parts = [
        HEAD,
        "## Broker: settings of CairnMQ\n",
        broker_table(lambda row: row.name.startswith("cairn.") and not row.doc.startswith(DEFAULTS)),
        "## Broker: settings of Kafka\n",
        broker_table(lambda row: not row.name.startswith("cairn.") and not row.doc.startswith(DEFAULTS)),
        "Other names: " + ", ".join(f"`{old}` for `{new}`" for old, new in sorted(OTHER_NAMES.items())) + ".\n",
        "## Topics\n",
        "A topic that does not set one of these has the value of the broker setting named beside it. If there are "
        "several, the first one that is set counts.\n",
        topic_table(),
        "## Groups\n",
        "For groups of the consumer protocol (KIP-848). Members of the classic protocol bring their own time limits.\n",
        group_table(),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
