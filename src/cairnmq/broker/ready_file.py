"""How others learn that the broker is ready: a line on standard output, and a file if one was asked for."""

from __future__ import annotations

import json
import os
import sys

from cairnmq.broker.options import Address
from cairnmq.broker.start_errors import CannotServe
from cairnmq.os_errors import reason_of


def announce(bootstrap: str, http: Address | None, ready_file: str | None) -> None:
    url = None if http is None else f"http://{http}"
    if ready_file is not None:
        # Before the line: whoever has read that may expect the file.
        temporary = f"{ready_file}.{os.getpid()}.tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"bootstrap": bootstrap, "http": url, "pid": os.getpid()}, file)
            os.replace(temporary, ready_file)
        except OSError as error:
            raise CannotServe(f"--ready-file {ready_file}: {reason_of(error)}") from error
    sys.stdout.write(f"cairn ready bootstrap={bootstrap} http={url or '-'} pid={os.getpid()}\n")
    sys.stdout.flush()


def remove_ready_file(path: str) -> None:
    """One that an earlier process left would tell a lie."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotServe(f"--ready-file {path}: {reason_of(error)}") from error
