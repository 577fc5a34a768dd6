"""The rule for programs that tests run: missing, they are a skip on a desk and a failure under CI=true."""

from __future__ import annotations

import os
import shutil

import pytest


def require_program(name: str) -> str:
    """The program's path."""
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not installed: `make test` and `make test-all` install what they need where they may"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
