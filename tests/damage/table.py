"""Counts of damage trials as tables: what became of damages in each kind of file, and of each kind of damage."""

from __future__ import annotations

from collections import Counter

from cairnmq.storage.files.format import PREVIOUS_SUFFIX
from damage.hurt import SUFFIXES, WAYS
from damage.judgement import OUTCOMES

BROKEN = "a promise broken"
_MARK = "damage"
_BETWEEN = " / "
_PREVIOUS = "previous checkpoint"
_KINDS = (*SUFFIXES.values(), "queue.json", "meta.db", "meta.db-wal", "owner.json")


def key(kind: str, way: str, outcome: str) -> str:
    """The name under which a trial is counted."""
    kind = _PREVIOUS if kind.endswith(PREVIOUS_SUFFIX) else kind
    return _BETWEEN.join((_MARK, kind, way, outcome))


def damage_tables(counts: Counter[str]) -> str:
    """Markdown; names that are no trials follow as lines."""
    cells = {tuple(name.split(_BETWEEN)[1:]): n for name, n in counts.items() if name.startswith(_MARK + _BETWEEN)}
    found = {kind for kind, _, _ in cells}
    kinds = [kind for kind in _KINDS if kind in found] + sorted(found.difference(_KINDS))
    outcomes = [each for each in (*OUTCOMES, BROKEN) if each == BROKEN or any(cell[2] == each for cell in cells)]
    lines = []
    for title, place, names in (("file", 0, kinds), ("damage", 1, list(WAYS))):
        others = list(WAYS) if place == 0 else []
        lines += [_row([title, "trials", *others, *outcomes]), "|" + "---|" * (2 + len(others) + len(outcomes))]
        for name in names:
            mine = {cell: n for cell, n in cells.items() if cell[place] == name}
            by_way = [sum(n for cell, n in mine.items() if cell[1] == way) for way in others]
            by_outcome = [sum(n for cell, n in mine.items() if cell[2] == outcome) for outcome in outcomes]
            lines.append(_row([name, *map(_number, (sum(mine.values()), *by_way, *by_outcome))]))
        if place == 0:
            whole = [sum(n for cell, n in cells.items() if cell[1] == way) for way in others]
            whole += [sum(n for cell, n in cells.items() if cell[2] == outcome) for outcome in outcomes]
            lines.append(_row(["all", *map(_number, (sum(cells.values()), *whole))]))
        lines.append("")
    rest = [f"{name}: {n:,}" for name, n in sorted(counts.items()) if not name.startswith(_MARK + _BETWEEN)]
    return "\n".join([*lines, "; ".join(rest) + "."]) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"
