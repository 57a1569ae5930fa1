"""The kernel's log: what was written there since then, and nothing where it may not be read."""

import os
import time
from pathlib import Path

import pytest

from gpuqueue.backends.kernel import KMSG, lines

XID = "NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault"


def record(message: str, ago_s: float) -> str:
    at_us = int((time.monotonic() - ago_s) * 1_000_000)
    return f"4,17,{at_us},-;{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n"


def test_records_since_then_without_what_belongs_to_them(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record("long ago", 3600) + record(XID, 10) + record("a; b", 5) + "no record at all\n")
    assert lines(time.time() - 60, log) == (XID, "a; b")


def test_a_log_without_an_end_is_read_to_its_newest_record(tmp_path: Path) -> None:
    """As the kernel's own: who reads it must not wait for the next record."""
    log = tmp_path / "fifo"
    os.mkfifo(log)
    kernel = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    try:
        for number in range(3):
            os.write(kernel, record(f"record {number}", 1).encode())
        assert lines(time.time() - 60, log) == ("record 0", "record 1", "record 2")
        assert lines(time.time() - 60, log) == ()
    finally:
        os.close(kernel)


def test_a_log_that_may_not_be_read_is_unknown_and_not_empty(tmp_path: Path) -> None:
    assert lines(0, tmp_path / "nothing") is None


@pytest.mark.root
def test_the_log_of_this_kernel() -> None:
    """What root writes there is a record like any other."""
    if not os.access(KMSG, os.W_OK):
        pytest.skip(f"{KMSG} is not there, or not writable even for root, as in a container")
    before, said = time.time() - 1, f"gpuqueue test: Killed process {os.getpid()} ({time.monotonic_ns()})"
    KMSG.write_text(f"<4>{said}\n")
    found = lines(before)
    assert found is not None
    assert said in found
    assert said not in (lines(time.time() + 60) or ())
