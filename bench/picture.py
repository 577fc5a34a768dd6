"""Grouped bars as SVG, by hand: no drawing library for a few rectangles. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from bench.table import figure

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 20, 20, 64, 34
COLOURS = ("#2f6f8f", "#c98b3c", "#7a8f3c")


def bars(title: str, categories: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> str:
    """One group per category, one bar per name; every bar says its value, so there is no axis to read."""
    highest = max((value for values in series.values() for value in values if value is not None), default=0.0) or 1.0
    group = (WIDTH - LEFT - RIGHT) / max(1, len(categories))
    bar = min(90.0, group * 0.8 / max(1, len(series)))
    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="{escape(title, quote=True)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#222222">{escape(title)}</text>',
    ]
    for index, name in enumerate(series):
        at = LEFT + index * 150
        parts.append(f'<rect x="{at}" y="34" width="11" height="11" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(f'<text x="{at + 16}" y="44" fill="#222222">{escape(name)}</text>')
    for place, category in enumerate(categories):
        middle = LEFT + group * (place + 0.5)
        parts.append(_text(middle, HEIGHT - 12, category))
        for index, values in enumerate(series.values()):
            value = values[place]
            if value is None:
                continue
            height = (floor - TOP - 14) * value / highest
            x = middle + (index - len(series) / 2) * bar
            colour = COLOURS[index % len(COLOURS)]
            parts.append(
                f'<rect x="{x + 2:.1f}" y="{floor - height:.1f}" width="{bar - 4:.1f}" height="{height:.1f}" '
                f'fill="{colour}"/>'
            )
            parts.append(_text(x + bar / 2, floor - height - 5, figure(value)))
    parts.append(f'<line x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}" stroke="#222222"/>')
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#222222">{escape(text)}</text>'
