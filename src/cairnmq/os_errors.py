"""Errors of the operating system as a person reads them."""

from __future__ import annotations

import errno
import os
from socket import gaierror

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk failed",
    errno.EADDRINUSE: "address already in use",  # an event loop puts a sentence of its own around it
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}


def reason_of(error: OSError) -> str:
    """Why a call to the operating system failed, in words that end a sentence."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, gaierror):
        return "unknown host name"
    if error.errno is None:
        return str(error)
    return _REASONS.get(error.errno) or os.strerror(error.errno).lower()


def text_of(error: BaseException) -> str:
    """The failure as a person reads it: of the operating system's the file and the reason, without its number."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error)
