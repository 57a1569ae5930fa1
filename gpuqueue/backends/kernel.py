"""The kernel's log: who was killed for want of host memory, and what the NVIDIA driver reported of its cards."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

KMSG = Path("/dev/kmsg")
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")  # priority, sequence, microseconds since boot, flags; message
_PIECE = 8192  # the kernel hands out one record a read, and none is longer


def lines(since_unix: float, log: Path = KMSG) -> tuple[str, ...] | None:
    """The log's lines from then on, oldest first; None where this user may not read it. Root always may, others where
    kernel.dmesg_restrict is 0."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = _all(descriptor).decode(errors="replace")
    finally:
        os.close(descriptor)
    since_us = (since_unix - (time.time() - time.monotonic())) * 1_000_000  # the log's clock stops during sleep, too
    found = [(int(record[1]), record[2]) for line in text.splitlines() if (record := _RECORD.match(line))]
    return tuple(message for at_us, message in found if at_us >= since_us)


def _all(descriptor: int) -> bytes:
    pieces = []
    while True:
        with suppress(BrokenPipeError):  # a record was overwritten before it was read: the next read goes on behind it
            try:
                piece = os.read(descriptor, _PIECE)
            except BlockingIOError:
                break
            if not piece:
                break
            pieces.append(piece)
    return b"".join(pieces)
