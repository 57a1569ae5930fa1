"""The system calls of Linux that Python has no name for. Each raises OSError where the kernel refuses."""

import ctypes
import fcntl
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate64.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO = struct.Struct("QQ11Ii")  # linux/pidfd.h, struct pidfd_info as first published: 64 bytes
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, that)


def become_subreaper() -> None:
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def punch_hole(descriptor: int, start: int, length: int) -> None:
    """Gives the blocks of that range back; the file keeps its size and reads zeros there."""
    _check(_libc.fallocate64(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, length))


def reserve(descriptor: int, start: int, length: int) -> None:
    """Blocks for that range, taken now; the file keeps its size."""
    _check(_libc.fallocate64(descriptor, _KEEP_SIZE, start, length))


def wait_status_of_reaped(pidfd: int) -> int | None:
    """The wait status of a process that somebody else has reaped, from a pidfd opened while it lived.
    None before it is reaped, and on kernels before 6.15."""
    buffer = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(buffer, 0, _PIDFD_INFO_EXIT, 0, *([0] * 12))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer, True)
    except OSError:
        return None
    mask, *_, wait_status = _PIDFD_INFO.unpack(buffer)
    return int(wait_status) if mask & _PIDFD_INFO_EXIT else None


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
