"""What travels between `gq` and the daemon: requests and views, the same dataclasses at both ends.

`__pydantic_config__` is read by the daemon's FastAPI alone: unknown fields and values of another type are
refused, and `job_class` travels as `class`, which Python cannot spell as a field name.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar

from gpuqueue.wire.states import JobClass, JobState, RestartMode, RunState


def _wire_name(name: str) -> str:
    return "class" if name == "job_class" else name


STRICT: dict[str, Any] = {"extra": "forbid", "alias_generator": _wire_name, "populate_by_name": False}

T = TypeVar("T")


class _Exact:
    """Read by the daemon's FastAPI alone: a value of another type is refused, where it would be converted."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": True}


Whole = Annotated[int, _Exact()]  # "22", 22.0 and true are no sizes
Flag = Annotated[bool, _Exact()]


def to_json(record: Any) -> Any:
    """A dataclass as plain JSON values, under the names that travel."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {_wire_name(f.name): to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParts:
    """What torch's tensors on one card are for, in MiB; in all its peak."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    frozen_mib: Whole  # weights that are not trained
    trained_mib: Whole
    gradients_mib: Whole  # all of them, as after a backward pass
    optimizer_mib: Whole  # what it keeps from step to step
    rest_mib: Whole  # what the peak has beyond these: activations, logits, scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """What `gq estimate` says of a job, uncorrected: MiB that one card will show as used, and of that torch's peak and
    the CUDA context; the rest is what torch's allocator cannot use again."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    occupied_mib: Whole
    torch_peak_mib: Whole
    context_mib: Whole
    parts: TensorParts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A job as asked for. Exactly one of `script` and `command` is what runs: with `script`, its text is
    kept as submitted and `command` holds its arguments. With `vram_auto` the daemon decides the claim, and
    `vram_mib` is 0."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    idempotency_key: str
    vram_mib: Whole
    command: list[str]
    cwd: str
    env: dict[str, str]
    script: str | None = None
    script_name: str | None = None
    umask: Whole = 0o022
    name: str | None = None
    job_class: JobClass = JobClass.TRAIN
    gpus: Whole = 1
    gpu_type: str | None = None
    gpu_indexes: list[Whole] = field(default_factory=list)
    exclusive: Flag = False
    time_s: Whole | None = None
    signal: str = "SIGTERM"
    grace_s: Whole | None = None
    mem_mib: Whole | None = None
    cpus: Whole | None = None
    interactive: Flag = False
    borrow: Flag = True
    restart: RestartMode = RestartMode.ON_FAILURE
    checkpoint_dir: str | None = None
    checkpoint_command: str | None = None
    resume: str | None = None
    resume_arg: str | None = None
    grow: Flag = False
    cap: Flag = False
    account: str | None = None
    as_user: str | None = None
    vram_auto: Flag = False
    model: str | None = None  # what the command trains or serves, where that can be read in it
    estimate: Estimated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One line of `gq status`, and the documented, stable fields of its `--json`. Times are unix seconds;
    `state_s` is how long the job has been in its state."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    id: int
    name: str
    user: str
    account: str
    job_class: JobClass
    state: JobState
    reason: str  # one sentence, "" while there is nothing to say
    reason_code: str
    vram_mib: int
    cards: list[int]
    gpus: int
    attempt: int  # 1 for the first; 0 before it
    restarts: int
    used_vram_mib: int | None  # measured now; None where nothing runs or the driver hides it
    peak_vram_mib: int | None
    borrowed_mib: int
    exit_code: int | None  # the script's own status, 128 + n after signal n; None while open or when lost
    resumed_from: str | None
    submitted_at: int
    started_at: int | None
    ended_at: int | None
    state_s: int
    ran_s: int
    limit_s: int | None
    command: str
    expected_start_at: int | None = None
    wait_status: int | None = None  # what `gq wait` exits with, once the job has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why an attempt failed, as its log and its surroundings tell (R5): the words of `gq diagnose`."""

    cause: str
    confidence: str  # high, medium or low
    evidence: str  # the line that shows it; "" for those who may not read the log
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchPeak:
    """The most that PyTorch held at a time, as a helper inside the job reports it: a claim, not a measurement."""

    allocated_mib: int  # torch.cuda.max_memory_allocated
    reserved_mib: int  # torch.cuda.max_memory_reserved
    context_mib: int | None = None
    parts: TensorParts | None = None  # as counted after its first optimizer steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """`curve` holds (seconds since its start, MiB on its fullest card), a few hundred points at most, none of its
    peaks left out. Growth is measured after it has loaded; None where it ran too shortly to tell."""

    number: int
    cards: list[int]
    started_at: int
    ended_at: int | None
    exit_code: int | None
    outcome: str  # one sentence: how it ended, or what it is doing
    resumed_from: str | None
    peak_vram_mib: int | None
    diagnosis: Diagnosis | None = None
    peak_at_s: int | None = None
    growth_mib_per_hour: int | None = None
    curve: list[tuple[int, int]] = field(default_factory=list)
    torch: TorchPeak | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    id: int
    at: int
    kind: str
    job_id: int | None
    actor: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    job: JobView
    attempts: list[AttemptView]
    events: list[EventView]
    settings: dict[str, str]  # what was asked for, as label -> text
    checkpoint: str | None
    log_path: str | None
    estimate: Estimated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    job: JobView
    notes: list[str]  # what the submitter should know, a sentence each


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One attempt that ended, as the history keeps it. Rows with the same `work` ran the same script or command with
    the same arguments in the same directory."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    id: int
    job_id: int
    attempt: int
    user: str
    account: str
    job_class: str
    name: str
    command: str  # "" like `model` and `work` for those who may not see it
    model: str | None
    work: str
    cards: int
    claim_mib: int
    estimate_mib: int | None
    peak_mib: int | None
    ran_s: int
    state: RunState
    cause: str | None  # of a failure
    ended_at: int
    estimate_parts: TensorParts | None = None
    torch: TorchPeak | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """How the caller's runs of one family of models compared with their estimates: peak over estimate, in per mille,
    1000 and no runs where too few are known."""

    family: str
    runs: int
    permille: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerView:
    pid: int
    user: str
    command: str
    used_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    job_id: int
    user: str
    account: str
    job_class: JobClass
    claim_mib: int
    charge_mib: int
    used_mib: int | None

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    index: int
    uuid: str
    name: str
    pci_bus_id: str
    simulated: bool
    capacity_mib: int
    held_back_mib: int
    charged_mib: int
    foreign_mib: int
    used_mib: int
    free_to_claim_mib: int  # what a light job and a train job could claim between them: C - T - L - F
    free_for_train_mib: int
    gpu_percent: int | None
    temperature_c: int | None
    context_mib: int | None  # of a bare CUDA context, as `gpuqueued init` measured it
    drained: str | None
    notes: list[str]
    tenants: list[TenantView]
    strangers: list[StrangerView]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    account: str
    train_mib: int
    light_mib: int
    train_used_mib: int
    light_used_mib: int
    source: str  # "set for the user", "group NAME", "default"
    note: str = ""  # what to know about a quota that was just set


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """None leaves a class as it is."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    train_mib: Whole | None = None
    light_mib: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRequest:
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    extend_s: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """One line of `gq doctor`: level is ok, note, warn or fail."""

    name: str
    level: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    version: str
    api: int
    simulated: bool
    host: str
    boot_id: str
    pid: int
    user: str  # who asks, as the kernel reported it
    account: str
    admin: bool
    containment: str
    cards: list[CardView]
    queued: int
    running: int
    fault: str | None = None  # why jobs are not supervised now, as on a full disk
