"""Records with every field set to something that is not its default: what a store must keep to the last one."""

from dataclasses import MISSING, fields
from typing import Any

from gpuqueue.core.history import PastRun, Work
from gpuqueue.core.model import AfterStop, Ask, Attempt, AttemptPhase, Job, Restarts, StopIntent
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.wire.jobs import Diagnosis, Estimated, SubmitRequest, TensorParts, TorchPeak
from gpuqueue.wire.states import JobClass, JobState, RestartMode, RunState

REASON = Reason(ReasonCode.IDLE, {"idle_s": 1800, "gpu_percent": "0.4", "cpu_cores": "0.1", "io": "1 KiB/s"})

PARTS = TensorParts(frozen_mib=7000, trained_mib=80, gradients_mib=81, optimizer_mib=160, rest_mib=679)

FULL_JOB = Job(
    id=0,
    user="anna",
    uid=1000,
    account="vision",
    ask=Ask(
        job_class=JobClass.LIGHT,
        claim_mib=9216,
        cards=1,
        gpu_type="A100",
        gpu_indexes=(1, 0),
        exclusive=True,
        interactive=True,
        borrow=False,
        grow=True,
        restart=RestartMode.ALWAYS,
        limit_s=7200,
        grace_s=60,
        stop_signal="SIGUSR1",
        checkpoint_dir="/scratch/out \udcff",
    ),
    state=JobState.STOPPING,
    state_since=500,
    queued_at=90,
    submitted_unix=1_700_000_000,
    claim_mib=10240,
    name="fine-tune \udcff\n’s",
    command="train.sh --rank 16",
    priority=-3,
    attempt=2,
    ran_s=399,
    extra_s=60,
    idle_exempt_until=900,
    not_before=450,
    held=True,
    requeue_rank=-1,
    stop=StopIntent(
        reason=REASON,
        actor="gpuqueue",
        after=AfterStop.REQUEUE,
        grace_s=60,
        asked_at=499,
        signalled=True,
        beneficiary=7,
        kept_mib=9216,
    ),
    restarts=Restarts(
        total=5,
        failures_in_row=2,
        recent_at=(100, 300),
        as_victim=1,
        newest_step=1000,
        failures_from={"/home/anna/out/checkpoint-900": 2},
        used_expandable_segments=True,
        grown=True,
    ),
    reason=Reason(ReasonCode.SIGNALLED, {"signal": "SIGSEGV"}),
    exit_status=3,
    exit_signal=11,
    resumed_from="/home/anna/out/checkpoint-900",
    peak_mib=9001,
    started_unix=1_700_000_010,
    ended_unix=1_700_000_500,
)

FULL_ATTEMPT = Attempt(
    job_id=1,
    number=2,
    phase=AttemptPhase.RELEASING,
    cards=("GPU-b", "GPU-a"),
    claim_mib=9216,
    charge_mib=10240,
    marker="f" * 32,
    boot_id="2c1f1b52-0000-4000-8000-000000000000",
    started_at=101,
    started_unix=1_700_000_010,
    nominal_mib=20480,
    held_back_mib=10240,
    ended_unix=1_700_000_500,
    exit_status=3,
    exit_signal=11,
    outcome="killed by SIGSEGV, not by gpuqueue",
    diagnosis=Diagnosis(cause="signal", confidence="high", evidence="Segmentation fault", advice="see its core file"),
    resumed_from="/home/anna/out/checkpoint-900",
    peak_mib=9001,
    peak_at_s=40,
    curve=((0, 512), (40, 9001), (399, 8000)),
    over_samples=1,
    over_at=480,
    flagged="pid 77 survives SIGKILL",
)

FULL_REQUEST = SubmitRequest(
    idempotency_key="3f9c",
    vram_mib=9216,
    command=["--epochs", "3", "caf\udce9"],
    cwd="/home/anna",
    env={"PATH": "/usr/bin", "LATIN1": "\udce9", "EMPTY": "", "LINES": "a\nb\0c"},
    script="#!/bin/sh\necho ü\n",
    script_name="train.sh",
    umask=0o077,
    name="fine-tune",
    job_class=JobClass.LIGHT,
    gpus=2,
    gpu_type="A100",
    gpu_indexes=[1, 0],
    exclusive=True,
    time_s=7200,
    signal="SIGUSR1",
    grace_s=60,
    mem_mib=4096,
    cpus=4,
    interactive=True,
    borrow=False,
    restart=RestartMode.ALWAYS,
    checkpoint_dir="/home/anna/out",
    checkpoint_command="newest",
    resume="latest",
    resume_arg="--resume={checkpoint}",
    grow=True,
    account="vision",
    as_user="anna",
    cap=True,
    vram_auto=True,
    model="Qwen2.5-7B",
    estimate=Estimated(occupied_mib=9216, torch_peak_mib=8000, context_mib=450, parts=PARTS),
)

FULL_RUN = PastRun(
    id=7,
    job_id=1,
    attempt=2,
    uid=1000,
    user="anna",
    account="vision",
    job_class=JobClass.LIGHT,
    name="fine-tune \udcff\n’s",
    command="train.sh --rank 16",
    work=Work(key="a" * 32, program="b" * 32, cards=1, model="Qwen2.5-7B", family="qwen2.5"),
    claim_mib=9216,
    estimate_mib=9000,
    peak_mib=9001,
    ran_s=399,
    state=RunState.FAILED,
    cause="program_error",
    ended_unix=1_700_000_500,
    estimate_parts=PARTS,
    torch=TorchPeak(allocated_mib=8000, reserved_mib=8500, context_mib=400, parts=PARTS),
)


def left_at_default(record: Any) -> set[str]:
    """The fields of `record` that do not differ from their default: a full record has none."""
    left = set()
    for field in fields(record):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and getattr(record, field.name) == default:
            left.add(field.name)
    return left
