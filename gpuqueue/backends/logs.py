"""Reading a job's log without trusting its owner: no link is followed, nothing but the owner's regular file is read."""

import errno
import os
import stat
from pathlib import Path

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.rundir import LOG, USER_DIR

_NO_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}  # a link, a socket, a device that is not there


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
    descriptor = _open(run_dir)
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


def _open(run_dir: Path) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(run_dir / USER_DIR, flags | os.O_DIRECTORY)
    try:
        owner = os.fstat(directory).st_uid
        descriptor = os.open(LOG, flags | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_a_log(run_dir) from error
        raise
    finally:
        os.close(directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
        os.close(descriptor)
        raise _not_a_log(run_dir)
    return descriptor


def _not_a_log(run_dir: Path) -> GpuqueueError:
    path = run_dir / USER_DIR / LOG
    return GpuqueueError(ErrorCode.NOT_PERMITTED, f"{path} is not a plain file of the job's owner: it is not read")


def _seek(descriptor: int, position: int, how: int, size: int) -> int:
    try:
        return min(os.lseek(descriptor, position, how), size)
    except OSError:  # ENXIO: nothing but a hole from there on
        return size
