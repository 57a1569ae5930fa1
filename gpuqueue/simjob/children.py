"""The children of the stand-in training: cores kept busy, files written, and one that gets away."""

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial

from gpuqueue.simjob.cuda import Cuda

_CYCLE_S = 0.05
_ESCAPED_S = 600  # nobody waits for it: it ends by itself in the end
_FILE_MIB = 64


def burn(cpu_percent: int) -> list[int]:
    """Keeps `cpu_percent` of one core busy, more than 100 with more than one child, as long as this process
    lives. Returns the children's pids."""
    shares = [min(cpu_percent - done, 100) for done in range(0, cpu_percent, 100)]
    return [_fork(partial(_burn, percent=share)) for share in shares]


def write(mib_s: int) -> list[int]:
    """Writes so much each second into a temporary file, as long as this process lives."""
    return [_fork(partial(_write, mib_s=mib_s))] if mib_s else []


def escape(cuda: Cuda, vram_mib: int) -> None:
    """Starts a child in a session of its own, whose parent is gone, and which holds VRAM. Returns once it does,
    or has failed to."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read_end)
        _fork(partial(_hold, cuda=cuda, vram_mib=vram_mib, ready=write_end))
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    os.read(read_end, 1)  # returns when the last writer is gone
    os.close(read_end)


def _fork(body: Callable[[int], None]) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _default_signals()
        body(parent)
    except BaseException:  # noqa: BLE001 — a forked child never returns into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(0)


def _hold(_parent: int, cuda: Cuda, vram_mib: int, ready: int) -> None:
    cuda.hold(vram_mib, 0)
    sys.stdout.write(f"escaped child {os.getpid()} holds {vram_mib} MiB\n")
    sys.stdout.flush()
    os.close(ready)
    time.sleep(_ESCAPED_S)


def _default_signals() -> None:
    """Those that the training only catches; what it ignores stays ignored."""
    signal.set_wakeup_fd(-1)
    for caught in signal.valid_signals():
        if callable(signal.getsignal(caught)):
            signal.signal(caught, signal.SIG_DFL)


def _burn(parent: int, percent: int) -> None:
    while os.getppid() == parent:
        start = time.monotonic()
        while time.monotonic() - start < _CYCLE_S * percent / 100:
            pass
        time.sleep(max(_CYCLE_S - (time.monotonic() - start), 0))


def _write(parent: int, mib_s: int) -> None:
    block = bytes(1024 * 1024)
    begin = time.monotonic()
    written_mib = 0
    with tempfile.TemporaryFile() as file:
        while os.getppid() == parent:
            file.seek(written_mib % _FILE_MIB * len(block))
            file.write(block)
            file.flush()
            written_mib += 1
            time.sleep(max(begin + written_mib / mib_s - time.monotonic(), 0))
