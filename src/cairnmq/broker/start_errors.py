"""Why a broker does not start: the exceptions of a start, and sentences for what the operating system refused."""

from __future__ import annotations

import errno

from cairnmq.broker.options import Address
from cairnmq.os_errors import reason_of

_NOT_A_DIRECTORY = (errno.EEXIST, errno.ENOTDIR)


class CannotServe(Exception):
    """The broker cannot start; the text is for the person who started it."""


class BadUsage(CannotServe):
    """Flags or settings say something that cannot be."""


class Stopped(Exception):
    """A signal came before the start was done."""


def cannot_listen(address: Address, error: OSError, purpose: str, flag: str) -> str:
    return f"cannot listen on {address} ({purpose}): {reason_of(error)}; choose another with {flag}"


def cannot_use(flag: str, path: str, error: OSError) -> str:
    """Of a directory that cannot be made, locked or written to."""
    where = error.filename or path
    told = f"{flag} {path}" if where == path else f"{flag} {path}: {where}"
    if error.errno in _NOT_A_DIRECTORY:
        return f"{told} is a file, not a directory; choose another directory"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{told}: permission denied; let the user who runs the broker write there, or choose another directory"
    return f"{told}: {reason_of(error)}; choose another directory"
