"""The one place that introduces everybody: builds the engine from its adapters and serves the API."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn

from gpuqueue.api.app import build_app
from gpuqueue.api.connections import ACCEPTED_IN_ONE_GO, Connection
from gpuqueue.backends.local import LocalBackend
from gpuqueue.config.settings import Settings
from gpuqueue.daemon import lock, systemd
from gpuqueue.daemon.calendar import calendar
from gpuqueue.daemon.listen import listen
from gpuqueue.engine.activity import ActivityBook
from gpuqueue.engine.clock import EngineClock
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.ports import Cards, Store
from gpuqueue.engine.tick import cycle
from gpuqueue.gpu import context
from gpuqueue.gpu.nvml import NvmlCards
from gpuqueue.gpu.processes import identify
from gpuqueue.gpu.simulated import SimulatedCards
from gpuqueue.store.open import open_store
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

log = logging.getLogger(__name__)

SHUTDOWN_S = 5


def serve(settings: Settings) -> None:
    """Serves until a signal ends it. Jobs go on without it: it owns nothing that they need."""
    state_dir = settings.state_dir
    make_state_dir(state_dir)
    with using(state_dir):
        held = [lock.hold(state_dir / "gpuqueued.lock", str(state_dir))]
        if not settings.simulate_mib:
            held.append(lock.hold_node(settings.node_lock))
        store = open_store(state_dir / "gpuqueue.db")
        cards = _cards(settings, state_dir)
        engine = build_engine(settings, store, cards)
    # A backup that was put back does not know of later jobs; their run directories are still there.
    store.reserve_ids(max((job_id for job_id, _ in engine.backend.attempts()), default=0))
    server_socket = listen(settings.socket, mode=settings.socket_mode, group=settings.socket_group)
    try:
        asyncio.run(_serve(engine, server_socket))
    finally:
        settings.socket.unlink(missing_ok=True)
        store.keep_engine_second(engine.clock.second)
        cards.close()
        store.close()
        for descriptor in held:
            os.close(descriptor)


def make_state_dir(state_dir: Path) -> None:
    """0711: a job must reach its own directory below, and list nothing. Raises GpuqueueError(UNAVAILABLE)."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
        state_dir.chmod(0o711)
    except OSError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE,
            f"cannot make {state_dir}: {error.strerror}",
            "give another --state-dir, or run as root",
        ) from error


@contextlib.contextmanager
def using(state_dir: Path) -> Iterator[None]:
    """What the disk of the state directory cannot do is said in plain words. Raises GpuqueueError(UNAVAILABLE)."""
    try:
        yield
    except OSError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE,
            f"cannot use {state_dir}: {error.strerror}" + (f": {error.filename}" if error.filename else ""),
            "free some space there" if error.errno == errno.ENOSPC else "see that it is a disk that can be written to",
        ) from error


def _cards(settings: Settings, state_dir: Path) -> Cards:
    if settings.simulate_mib:
        return SimulatedCards(state_dir / "sim", settings.simulate_mib)
    return NvmlCards()


def build_engine(settings: Settings, store: Store, cards: Cards) -> Engine:
    idle = settings.policy.idle
    windows = (idle.train_window_s, idle.light_window_s, idle.interactive_window_s, idle.stalled_stop_s or 0)
    return Engine(
        settings=settings,
        store=store,
        cards=cards,
        backend=LocalBackend(settings.state_dir, settings.containment),
        identify=identify,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        daemon_uid=os.geteuid(),
        clock=_clock(store),
        activity=ActivityBook(window_s=max(windows)),
        contexts_mib=context.kept(settings.state_dir),
    )


def _clock(store: Store) -> EngineClock:
    """Never before what is on record: it is kept every few seconds only, and a crash must make no pause longer."""
    return EngineClock(second=max([store.engine_second(), *(job.state_since for job in store.open_jobs())]))


async def _serve(engine: Engine, server_socket: socket.socket) -> None:
    config = uvicorn.Config(
        build_app(engine),
        http=Connection,
        backlog=ACCEPTED_IN_ONE_GO,
        ws="none",
        lifespan="off",
        loop="asyncio",
        proxy_headers=False,  # nobody can claim to be somebody else
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=30,
    )
    server = _Server(config)
    async with _supervision(engine):
        systemd.notify("READY=1")
        log.info("serving on %s", engine.settings.socket, extra={"action": "ready"})
        await server.serve(sockets=[server_socket])
        systemd.notify("STOPPING=1")


class _Server(uvicorn.Server):
    """Ends with status 0 on SIGTERM and SIGINT, where uvicorn would die of the signal. SIGHUP is no reason to end:
    jobs and daemon outlive the terminal that started them (scenario 4)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP ignored: restart to reload the configuration")
        yield


@contextlib.asynccontextmanager
async def _supervision(engine: Engine) -> AsyncIterator[None]:
    """The tick loop and the calendar run while the context lasts; the first tick is over before it begins."""
    loop = asyncio.create_task(engine.run(cycle), name="ticks")
    scheduler = calendar(engine)
    try:
        await engine.next_tick()
        yield
    finally:
        scheduler.shutdown(wait=False)
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop
