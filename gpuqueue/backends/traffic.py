"""Bytes over TCP by socket, from the kernel's socket diagnostics (linux/sock_diag.h, linux/inet_diag.h).

What arrives by recv() is in no counter of a process, so a job that only downloads would look idle (I1). Not seen:
UDP, and sockets of another network namespace.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2
_WITH_TCP_INFO = 1 << (2 - 1)
_TCP_INFO = 2
_STATES = 0xFFF & ~(1 << 6) & ~(1 << 10)  # all but TIME_WAIT and LISTEN
_HEADER = struct.Struct("=IHHII")
_MESSAGE_BYTES, _INODE_AT = 72, 68  # struct inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_ACKED_RECEIVED = struct.Struct("=QQ")
_ACKED_AT = 120  # in struct tcp_info: bytes_acked, then bytes_received
_WAIT_S = 1.0


def tcp_bytes() -> dict[int, int]:
    """Inode of each TCP socket -> bytes received and sent since it was connected. Empty where the kernel does not
    tell: then downloads count by what is written of them."""
    found: dict[int, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            found.update(_dump(family))
    return found


def sockets_of(pid: int) -> set[int]:
    inodes = set()
    with suppress(OSError):  # gone, or not ours to look at
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError):
                kind, _, inode = os.readlink(entry.path).partition(":[")  # noqa: PTH115
                if kind == "socket":
                    inodes.add(int(inode[:-1]))
    return inodes


def _dump(family: int) -> Iterator[tuple[int, int]]:
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, _WITH_TCP_INFO, _STATES)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_WAIT_S)
        kernel.send(header + request)
        while True:
            answer = kernel.recv(1 << 17)
            while answer:
                length, kind, *_ = _HEADER.unpack_from(answer)
                if kind in (_DONE, _ERROR) or length < _HEADER.size:
                    return
                if socket_bytes := _parse(answer[_HEADER.size : length]):
                    yield socket_bytes
                answer = answer[(length + 3) & ~3 :]


def _parse(message: bytes) -> tuple[int, int] | None:
    (inode,) = struct.unpack_from("=I", message, _INODE_AT)
    rest = message[_MESSAGE_BYTES:]
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if kind == _TCP_INFO and length >= _ATTRIBUTE.size + _ACKED_AT + _ACKED_RECEIVED.size:
            acked, received = _ACKED_RECEIVED.unpack_from(rest, _ATTRIBUTE.size + _ACKED_AT)
            return inode, acked + received
        rest = rest[max((length + 3) & ~3, _ATTRIBUTE.size) :]
    return None
