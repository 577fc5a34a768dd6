"""Pictures of the status page for the documents: `PYTHONPATH=tests python -m browser.pictures`, two minutes.

The pages stay open while the demo runs, so that their charts have something to show.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from broker_process import CAIRN
from browser.chromium import Chromium, Page
from cairnmq.cli.demo import CYCLE_SECONDS, REST_SECONDS

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
CYCLES = 2
PICTURES = {  # name: (view, width, height, dark)
    "status-page": ("", 1280, 700, False),
    "status-page-dark": ("", 1280, 700, True),
    "status-page-phone": ("", 390, 844, False),
    "topic-page": ("topics/orders", 1280, 1180, False),
    "topic-page-phone": ("topics/orders", 390, 844, True),
    "group-page": ("groups/analytics", 1280, 900, False),
}


def take(url: str, begun: float, directory: Path) -> None:
    with tempfile.TemporaryDirectory() as profile, Chromium(Path(profile)) as browser:
        pages: dict[str, Page] = {}
        for name, (view, width, height, dark) in PICTURES.items():
            pages[name] = browser.open(f"{url}/#/{view}", width=width, height=height, dark=dark)
        # Near the end of a rest: the lag of one group is worth looking at.
        time.sleep(max(0.0, begun + CYCLES * CYCLE_SECONDS - 0.2 * REST_SECONDS - time.monotonic()))
        for name, page in pages.items():
            page.picture(directory / f"{name}.png")


def main() -> None:
    demo = subprocess.Popen([CAIRN, "demo"], stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        shown = dict(demo.stdout.readline().strip().rsplit(None, 1) for _ in range(2))
        IMAGES.mkdir(exist_ok=True)
        take(shown["status page"], time.monotonic(), IMAGES)
    finally:
        demo.terminate()
        demo.wait()


if __name__ == "__main__":
    main()
