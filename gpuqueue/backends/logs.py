"""Reading a job's log, without trusting its owner, and across what was cut out of it."""

import os
from pathlib import Path

from gpuqueue.backends.owned import open_owned
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.rundir import LOG, USER_DIR


def read_log(run_dir: Path, offset: int, limit: int) -> tuple[bytes, int, int]:
    """(bytes, offset of the first of them, size of the log). At most `limit` bytes, and none across a cut: where
    the middle was cut out (J3), the last bytes of the gap read as one line that says so. The next offset is always
    the first plus the number of bytes. A negative offset counts from the end. A log that is not there yet is empty.
    Raises GpuqueueError, never OSError: one job's log must not stop the supervision of the others."""
    try:
        return _read(run_dir, offset, limit)
    except FileNotFoundError:
        return b"", 0, 0
    except OSError as error:
        message = f"the log {run_dir / USER_DIR / LOG} cannot be read: {error.strerror}"
        raise GpuqueueError(ErrorCode.UNAVAILABLE, message, "see the disk, and the daemon's rights there") from error


def _read(run_dir: Path, offset: int, limit: int) -> tuple[bytes, int, int]:
    descriptor = open_owned(run_dir, LOG)
    try:
        size = os.fstat(descriptor).st_size
        offset = offset if offset >= 0 else max(size + offset, 0)
        if offset >= size or limit <= 0:
            return b"", min(offset, size), size
        data = _seek(descriptor, offset, os.SEEK_DATA, size)
        end = _seek(descriptor, data, os.SEEK_HOLE, size) if data < size else size
        line = b"gq: [cut here to keep the log under its cap; it goes on at byte %d]\n" % data if data > offset else b""
        first = max(data - len(line), offset)
        gap = line[len(line) - (data - first) :]
        return (gap + os.pread(descriptor, min(limit, end - data), data))[:limit], first, size
    finally:
        os.close(descriptor)


def _seek(descriptor: int, position: int, how: int, size: int) -> int:
    try:
        return min(os.lseek(descriptor, position, how), size)
    except OSError:  # ENXIO: nothing but a hole from there on
        return size
