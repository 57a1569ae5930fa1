"""What wakes the daemon: a shim's word on wake.sock, and the end of a shim's process by pidfd."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpuqueue.wire.procfs import find
from gpuqueue.wire.rundir import WAKE_SOCKET, ProcessIdentity


class Wakeups:
    """Hints only: everything that they tell is also found by looking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], None] = lambda: None
        self._socket: socket.socket | None = None
        self._watched: dict[ProcessIdentity, int] = {}

    def open(self, wake: Callable[[], None]) -> None:
        """Called on the event loop that `wake` is to be called on."""
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        if self._socket is None:
            self._socket = self._bind()
        self._loop.add_reader(self._socket, self._on_word)

    def watch(self, process: ProcessIdentity) -> None:
        """Wakes once when that process ends. From any thread; watching twice is watching once."""
        if self._loop is not None and process not in self._watched:
            self._loop.call_soon_threadsafe(self._watch, process)

    def close(self) -> None:
        if self._loop is None:
            return
        for process in list(self._watched):
            self._unwatch(process)
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            (self._directory / WAKE_SOCKET).unlink(missing_ok=True)
        self._loop = None

    def _watch(self, process: ProcessIdentity) -> None:
        if self._loop is None or process in self._watched:
            return
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:  # ended already: worth a look as well
            self._wake()
            return
        self._watched[process] = descriptor
        self._loop.add_reader(descriptor, self._on_end, process)
        if find(process) is None:  # the pid has a new owner
            self._on_end(process)

    def _on_end(self, process: ProcessIdentity) -> None:
        self._unwatch(process)
        self._wake()

    def _unwatch(self, process: ProcessIdentity) -> None:
        descriptor = self._watched.pop(process)
        if self._loop is not None:
            self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def _on_word(self) -> None:
        with suppress(BlockingIOError):
            while self._socket is not None:
                self._socket.recv(256)
        self._wake()

    def _bind(self) -> socket.socket:
        # By way of /proc, since the address of a socket holds 107 bytes and a state directory may be deep.
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        try:
            (self._directory / WAKE_SOCKET).unlink(missing_ok=True)
            listener.bind(f"/proc/self/fd/{directory}/{WAKE_SOCKET}")
            (self._directory / WAKE_SOCKET).chmod(0o600)
        finally:
            os.close(directory)
        return listener
