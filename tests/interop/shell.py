"""`cairn` as a script or a person at a terminal runs it, against a broker of a test."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from broker_process import CAIRN

SECONDS = 60


class Done:
    """What a command left behind."""

    def __init__(self, code: int, out: bytes, errors: str) -> None:
        self.code, self.out, self.errors = code, out, errors

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


class Shell:
    """Runs `cairn` with CAIRN_BOOTSTRAP set, as a person would have it."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "CAIRN_BOOTSTRAP": bootstrap}

    def __call__(self, *words: str, stdin: bytes = b"", code: int = 0) -> Done:
        done = subprocess.run([CAIRN, *words], input=stdin, capture_output=True, timeout=SECONDS, env=self.environment)
        errors = done.stderr.decode()
        assert done.returncode == code, f"cairn {' '.join(words)} ended with {done.returncode}: {errors}"
        assert "Traceback" not in errors, errors
        return Done(done.returncode, done.stdout, errors)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([CAIRN, *words], stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment)

    def at_terminal(self, *words: str, **environment: str) -> Terminal:
        return Terminal([CAIRN, *words], {**self.environment, "TERM": "xterm", **environment})


class Terminal:
    """A command whose standard streams are a terminal; what it shows is gathered."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until that was shown, so many times in all."""
        deadline = time.monotonic() + SECONDS
        while self.shown.count(text) < times:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown {times} times, but:\n{self.shown}"
            if select.select([self._master], [], [], left)[0]:
                try:
                    self.shown += os.read(self._master, 65536).decode()
                except OSError:  # the other side is closed
                    raise AssertionError(f"it ended without {text!r}:\n{self.shown}") from None
