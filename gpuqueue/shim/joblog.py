"""The job's log from the monitor's side: gpuqueue's own lines, the cap, and room on a full disk (J3).

The job appends to the file itself. The monitor holds a descriptor of its own that the owner opened for it.
"""

import errno
import os
from contextlib import suppress

from gpuqueue.shim import linux

_BLOCK = 64 * 1024  # a multiple of the block size of every file system that can punch holes
_ROOM = 4 * 1024 * 1024
_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM}


class JobLog:
    """`cap_bytes` bounds the blocks that the log takes, give or take what is printed between two checks."""

    def __init__(self, descriptor: int | None, cap_bytes: int) -> None:
        self._descriptor = descriptor
        self._cap = max(cap_bytes, 8 * _BLOCK)
        self._room = min(_ROOM, self._cap // 8)
        self._reserved_to = 0
        self._head = self._aligned(self._cap // 4)
        self._hole_end = self._head
        self._tail = self._cap // 2
        self._can_punch = self._can_reserve = True
        self._size = 0
        self.grows_fast = False  # look again sooner

    def say(self, text: str) -> bool:
        """One line, marked as gpuqueue's. False where it cannot be written now: say it again later."""
        if self._descriptor is None:
            return True
        line = b"gq: " + " ".join(text.splitlines()).encode("utf-8", "replace") + b"\n"
        try:
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            return os.write(self._descriptor, line) == len(line)
        except OSError:
            return False

    def upkeep(self) -> None:
        """Keeps the cap and the room ahead of the end. Cheap where there is nothing to do."""
        if self._descriptor is None:
            return
        status = os.fstat(self._descriptor)
        if status.st_size < self._size:  # its owner truncated it
            self._hole_end, self._reserved_to, self._tail = self._head, 0, self._cap // 2
        self.grows_fast = status.st_size - self._size > self._room // 8
        self._size = status.st_size
        if self._taken() > self._cap:
            self._cut(self._hole_end, status.st_size - self._cap // 2)
        if self._can_reserve and self._reserved_to - status.st_size < self._room - _BLOCK:
            self._make_room(status.st_size)

    def release(self) -> None:
        """Gives back the room ahead of the end, once nobody writes any more."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size)

    def _make_room(self, size: int) -> None:
        if self._reserve(size, self._room):
            self._tail = self._cap // 2
            return
        have = max(self._reserved_to - size, 0)
        if not self._can_reserve or have > self._room // 2:
            return
        # The disk is full: the log lives on what its own middle gives back, half of it at a time.
        self._tail = max(min(self._tail, size) // 2, self._room // 4)
        more = self._taken()
        self._cut(_BLOCK, size - self._tail)
        more -= self._taken()
        while more >= 4096 and not self._reserve(size, have + more):
            more //= 2  # somebody else was faster

    def _taken(self) -> int:
        return os.fstat(self._descriptor or 0).st_blocks * 512

    def _reserve(self, size: int, room: int) -> bool:
        try:
            linux.reserve(self._descriptor or 0, size, room)
        except OSError as error:
            self._can_reserve = error.errno not in _CANNOT
            return False
        self._reserved_to = size + room
        return True

    def _cut(self, start: int, end: int) -> None:
        """Punches out the whole blocks between two positions."""
        end = self._aligned(end)
        if not self._can_punch or end <= start:
            return
        try:
            linux.punch_hole(self._descriptor or 0, start, end - start)
            self._hole_end = max(self._hole_end, end)
        except OSError as error:
            self._can_punch = error.errno not in _CANNOT

    @staticmethod
    def _aligned(position: int) -> int:
        return position // _BLOCK * _BLOCK
