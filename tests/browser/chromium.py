"""A real browser, driven over the DevTools protocol: Chromium without a window, spoken to through a pipe.

The pipe (`--remote-debugging-pipe`) carries JSON with a zero byte after each message, so no package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 120.0  # on a machine that others use too; only a failure uses it up
POLL_SECONDS = 0.02
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
]  # fmt: skip


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """`profile` is an empty directory for whatever the browser keeps."""

    def __init__(self, profile: Path) -> None:
        found = program()
        assert found is not None, "chromium is not installed"
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The protocol is spoken on file descriptors 3 and 4, which a shell can arrange without a fork of our own.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, found, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)  # the browser ends with its pipe
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        self._number += 1
        request: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            request["sessionId"] = session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._in], [], [], SECONDS)
            assert readable, "the browser does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, f"the browser has ended with exit code {self._process.wait()}"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        page = Page(self, width, height)
        page.prefer(dark=dark)
        page.go(url)
        return page


class Page:
    """A tab of its own."""

    def __init__(self, browser: Chromium, width: int, height: int) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # every tab believes to be the one in front
        self.resize(width, height)
        # Whatever the page throws or its content policy refuses is a failure of the test.
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 700,
        )  # fmt: skip

    def prefer(self, *, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Until an expression is true; gives its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.ask(f"(value => value instanceof Node || value)({script})")):
            assert time.monotonic() < deadline, f"waited in vain for {script}; the page says: {self.text()[:2000]}"
            time.sleep(POLL_SECONDS)
        return value

    def text(self) -> str:
        return str(self.ask("document.body.innerText"))

    def complaints(self) -> list[str]:
        found: list[str] = self.ask("window.complaints")
        return found

    def key(self, name: str) -> None:
        code, text = _KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


_KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}
_WATCH = """
window.complaints = [];
addEventListener("error", event => complaints.push(event.message));
addEventListener("unhandledrejection", event => complaints.push(String(event.reason)));
addEventListener("securitypolicyviolation", event => complaints.push(event.violatedDirective));
{ const error = console.error; console.error = (...said) => { complaints.push(said.join(" ")); error(...said); }; }
"""
