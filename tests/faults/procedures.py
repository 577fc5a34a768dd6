"""The procedures of docs/recovery.md: blocks of commands, read out of the page and done step by step."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from broker_process import CAIRN, Broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"
BLOCK = re.compile(r"<!-- procedure: (.+?) -->\n```\n(.*?)```", re.DOTALL)
NAMES = ("DATA", "JOURNALS", "BACKUP")
SECONDS = 60.0


class Step(NamedTuple):
    """A line: the command, and what stands behind it."""

    command: str
    remark: str


def procedures() -> dict[str, list[Step]]:
    """Each by its name, in the order of the page."""
    found = {}
    for name, block in BLOCK.findall(PAGE.read_text()):
        parts = [line.partition("#") for line in block.splitlines() if line.strip()]
        found[name] = [Step(command.strip(), remark.strip()) for command, _, remark in parts]
    return found


class Operator:
    """Somebody who does what the page says. `broker` is the last one that was started; it may still run."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.settings = settings
        self.broker: Broker | None = None
        self.starts = 0
        self.said: list[str] = []  # by starts that were refused and commands that found something

    def place(self, name: str) -> Path:
        return self.directory / name

    def follow(self, name: str) -> None:
        for step in procedures()[name]:
            self.do(step)

    def do(self, step: Step) -> None:
        line = re.sub(rf"\b({'|'.join(NAMES)})\b", lambda match: str(self.place(match[0])), step.command)
        words = shlex.split(line)
        if words[:2] == ["cairn", "serve"]:
            self.serve(words[2:], refused=step.remark.startswith("refused"))
            return
        if words[0] == "cairn":
            line = shlex.join([CAIRN, *words[1:]])
        done = subprocess.run(
            ["bash", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd=self.directory,
        )
        wanted = int(match[1]) if (match := re.match(r"exit (\d)", step.remark)) else 0
        assert done.returncode == wanted, f"{step.command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        if words[0] == "cairn":
            self.said.append(done.stdout + done.stderr)

    def serve(self, words: list[str], *, refused: bool) -> None:
        options = dict(zip(words, words[1:], strict=False))
        flags = [word for word in words if word == "--accept-loss"]
        assert sorted(words) == sorted(["--data", options["--data"], "--journal-dir", options["--journal-dir"], *flags])
        for _ in range(2 if refused else 1):  # whoever watches over a broker tries again
            self.starts += 1
            broker = Broker(self.directory / f"process-{self.starts}", settings=self.settings, flags=flags)
            broker.data, broker.journal_dir = Path(options["--data"]), Path(options["--journal-dir"])
            if not refused:
                self.broker = broker.start()
                return
            broker.launch()
            code = broker.wait_dead()
            self.said.append(broker.log())
            broker.close()
            assert code == 1, f"the start was to be refused, and ended with {code}\n{broker.log_tail()}"

    def stop(self) -> int:
        assert self.broker is not None
        return self.broker.stop()

    def close(self) -> None:
        if self.broker is not None:
            self.broker.close()
