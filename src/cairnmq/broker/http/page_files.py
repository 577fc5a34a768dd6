"""The status page's files, read when a browser asks for them: a broker that nobody looks at holds none."""

from __future__ import annotations

from pathlib import Path

_DIRECTORY = Path(__file__).parent / "page"

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"
SCRIPT = "text/javascript; charset=utf-8"

INDEX = "index.html"
KINDS = {
    INDEX: HTML,
    "app.css": CSS,
    "app.js": SCRIPT,
    "cluster.js": SCRIPT,
    "dom.js": SCRIPT,
    "format.js": SCRIPT,
    "group.js": SCRIPT,
    "history.js": SCRIPT,
    "overview.js": SCRIPT,
    "table.js": SCRIPT,
    "topic.js": SCRIPT,
    "icon.svg": "image/svg+xml",
}


def read(name: str) -> bytes:
    """Blocks."""
    return (_DIRECTORY / name).read_bytes()
