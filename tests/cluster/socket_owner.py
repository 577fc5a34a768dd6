"""Whose socket a connection on this machine is, without reading all its connections: the kernel is asked for one."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

SOCK_DIAG = 4  # the family of netlink sockets
BY_FAMILY, REQUEST = 20, 1
ANY = 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")
ASKED = struct.Struct("=BBBxI")
ENDS = struct.Struct("!HH4s12x4s12x")
INODE = struct.Struct("=I")
INODE_AT = HEADER.size + 68


def inode_of(port: int, peer: int) -> int | None:
    """Of the socket of 127.0.0.1:`port` that is connected to 127.0.0.1:`peer`. None: there is none."""
    address = socket.inet_aton("127.0.0.1")
    body = ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ANY) + ENDS.pack(port, peer, address, address)
    body += struct.pack("=III", 0, ANY, ANY)  # whatever interface and cookie
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.send(HEADER.pack(HEADER.size + len(body), BY_FAMILY, REQUEST, 0, 0) + body)
        answer = kernel.recv(4096)
    _, kind, *_ = HEADER.unpack_from(answer)
    return INODE.unpack_from(answer, INODE_AT)[0] if kind == BY_FAMILY else None


def owner(inode: int, pids: Mapping[int, int]) -> int | None:
    """Which of these processes has it open."""
    link = f"socket:[{inode}]"
    for name, pid in pids.items():
        with suppress(OSError):  # the process has just ended
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(FileNotFoundError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") == link:
                        return name
    return None
