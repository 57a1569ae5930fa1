"""Opening files of a job's owner without trusting them: no link is followed, nothing but the owner's regular file is
read."""

import errno
import os
import stat
from pathlib import Path

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.rundir import USER_DIR

_NO_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}  # a link, a socket, a device that is not there


def open_owned(run_dir: Path, name: str) -> int:
    """A descriptor of `name` in the attempt's user directory. Raises GpuqueueError(NOT_PERMITTED) where it is not a
    plain file of the directory's owner, OSError where it is not there or cannot be read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(run_dir / USER_DIR, flags | os.O_DIRECTORY)
    try:
        owner = os.fstat(directory).st_uid
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_a_plain_file(run_dir, name) from error
        raise
    finally:
        os.close(directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
        os.close(descriptor)
        raise _not_a_plain_file(run_dir, name)
    return descriptor


def _not_a_plain_file(run_dir: Path, name: str) -> GpuqueueError:
    path = run_dir / USER_DIR / name
    return GpuqueueError(ErrorCode.NOT_PERMITTED, f"{path} is not a plain file of the job's owner: it is not read")
