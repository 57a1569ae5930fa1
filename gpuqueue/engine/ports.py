"""What the engine needs of the world, as Protocols. Adapters satisfy them by shape and import none of this;
one contract suite per Protocol in tests/contracts runs on every implementation."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from gpuqueue.core.history import PastRun
from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.policy import Nominal
from gpuqueue.core.readings import NodeReading, Probe, ProcessUse
from gpuqueue.wire.jobs import EventView, SubmitRequest, TorchPeak
from gpuqueue.wire.rundir import Spec, StopOrder


class KnownProcess(Protocol):
    """Who a process that holds VRAM is."""

    @property
    def user(self) -> str: ...

    @property
    def command(self) -> str:
        """One printable line, shortened."""
        ...

    @property
    def display_server(self) -> bool: ...


class Cards(Protocol):
    """Contract: tests/contracts/test_cards.py."""

    simulated: bool

    def read(self) -> NodeReading:
        """All cards now. Never raises for the driver's state: faults are in the reading."""
        ...

    def job_environment(self) -> Mapping[str, str]:
        """What a job must have in its environment to find these cards beside its pinning (empty with NVML)."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Contract: tests/contracts/test_backend.py and gpuqueue/shim/README.md."""

    containment: str  # best kind available here: "systemd", "cgroup" or "session"
    limits_memory: bool  # whether --mem is enforced, or only asked for

    def start(self, spec: Spec) -> None:
        """Starts the attempt. Starting one that was started before is a no-op, so an interrupted start may be
        repeated. Raises GpuqueueError(UNAVAILABLE) when the machine cannot (no space, no process)."""
        ...

    def probe(self, job_id: int, attempt: int) -> Probe:
        """Also makes sure that somebody watches: an attempt whose shim died gets an adopter."""
        ...

    def stop(self, job_id: int, attempt: int, order: StopOrder) -> None:
        """Writes the order and wakes the shim. Repeating it is harmless; a shorter grace replaces a longer."""
        ...

    def say(self, job_id: int, attempt: int, sentence: str) -> None:
        """One line into the job's own log, marked as gpuqueue's."""
        ...

    def uses(self) -> Mapping[tuple[int, int], ProcessUse]:
        """(job id, attempt) -> its processes, children that escaped included; one scan for all."""
        ...

    def set_waker(self, wake: Callable[[], None]) -> None:
        """`wake` is called on the event loop when an attempt changed: came alive, ended, new checkpoint."""
        ...

    def log_path(self, job_id: int, attempt: int) -> str: ...

    def read_log(self, job_id: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int, int]:
        """(bytes, offset of the first of them, size of the log). Bytes cut out of the middle (J3) are skipped
        with one line that says so. Opens nothing that is not the job owner's own regular file."""
        ...

    def kernel_lines(self, since_unix: float) -> tuple[str, ...] | None:
        """What the kernel of the jobs' machine logged from then on, oldest first; None where it may not be read."""
        ...

    def torch_peak(self, job_id: int, attempt: int) -> TorchPeak | None:
        """What a helper inside the job reported of PyTorch's memory; None where there is none, or nothing that can be
        believed. Opens nothing that is not the job owner's own regular file."""
        ...

    def attempts(self) -> Sequence[tuple[int, int]]:
        """(job id, attempt) of every run directory there is."""
        ...

    def remove(self, job_id: int, attempt: int) -> None:
        """Deletes the run directory of an attempt that has ended; retention only."""
        ...


class Store(Protocol):
    """Contract: tests/contracts/test_store.py. Times named `now` are engine seconds."""

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside commit together or not at all; nests. Outside one, each call is its own."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """`call` is made once the writes before it are on disk, at once outside a transaction; never where they are
        rolled back."""
        ...

    def add_job(self, job: Job, request: SubmitRequest) -> tuple[Job, bool]:
        """(the job with its id, True if new). A known (uid, idempotency key) returns the job it made (J5)."""
        ...

    def save_job(self, job: Job, expect: str) -> bool:
        """Writes the job if its stored state is still `expect`; False means stale, and nothing was written."""
        ...

    def job(self, job_id: int) -> Job | None: ...

    def request(self, job_id: int) -> SubmitRequest | None: ...

    def open_jobs(self) -> list[Job]: ...

    def ended_jobs(self, limit: int, user: str | None = None) -> list[Job]:
        """Newest end first."""
        ...

    def save_attempt(self, attempt: Attempt) -> None: ...

    def attempts(self, job_id: int) -> list[Attempt]: ...

    def held_attempts(self) -> list[Attempt]:
        """Every attempt that is not ENDED: it holds its lease."""
        ...

    def quotas(self) -> dict[str, Nominal]:
        """Set with `gq quota set`, by account."""
        ...

    def set_quota(self, account: str, nominal: Nominal | None) -> None: ...

    def usage(self) -> dict[str, tuple[int, int]]:
        """account -> (decayed MiB-seconds, engine second of the last decay)."""
        ...

    def set_usage(self, usage: Mapping[str, tuple[int, int]]) -> None: ...

    def drained(self) -> dict[str, str]:
        """card UUID -> why."""
        ...

    def set_drained(self, uuid: str, why: str | None) -> None: ...

    def add_event(self, kind: str, actor: str, text: str, job_id: int | None, at_unix: int) -> EventView: ...

    def events(self, after: int, limit: int, job_id: int | None = None) -> list[EventView]:
        """Oldest first, ids greater than `after`; with after = -1 the newest `limit`."""
        ...

    def add_run(self, run: PastRun) -> None:
        """Into the history, which outlives its job. An attempt that is there already stays as it is."""
        ...

    def runs(
        self,
        limit: int,
        *,
        before: int | None = None,
        uid: int | None = None,
        account: str | None = None,
        program: str | None = None,
        family: str | None = None,
    ) -> list[PastRun]:
        """Newest first, ids less than `before`; only those of what is given."""
        ...

    def prune_runs(self, before_unix: int) -> None:
        """Forgets the history from before then."""
        ...

    def engine_second(self) -> int:
        """The engine clock as last kept; 0 in a new database."""
        ...

    def keep_engine_second(self, now: int) -> None: ...

    def prune(self, before_unix: int) -> Sequence[tuple[int, int]]:
        """Forgets ended jobs older than that; returns the (job id, attempt) whose run directories may go."""
        ...

    def reserve_ids(self, up_to: int) -> None:
        """New jobs get ids above `up_to`."""
        ...

    def backup(self, path: str) -> None: ...

    def close(self) -> None: ...
