"""Views as a daemon would send them, for the tests of what `gq` prints."""

from typing import Any

from gpuqueue.wire.jobs import (
    AttemptView,
    CardView,
    Diagnosis,
    EventView,
    JobDetail,
    JobView,
    NodeView,
    StrangerView,
    TenantView,
)
from gpuqueue.wire.states import JobClass, JobState

NOW = 1_790_000_000


def job(id: int = 12, **changes: Any) -> JobView:
    fields: dict[str, Any] = {
        "id": id,
        "name": "train.sh",
        "user": "ann",
        "account": changes.get("user", "ann"),
        "job_class": JobClass.TRAIN,
        "state": JobState.RUNNING,
        "reason": "",
        "reason_code": "",
        "vram_mib": 22528,
        "cards": [0],
        "gpus": 1,
        "attempt": 1,
        "restarts": 0,
        "used_vram_mib": 18739,
        "peak_vram_mib": 19000,
        "borrowed_mib": 0,
        "exit_code": None,
        "resumed_from": None,
        "submitted_at": NOW - 4000,
        "started_at": NOW - 3900,
        "ended_at": None,
        "state_s": 3900,
        "ran_s": 3900,
        "limit_s": 86400,
        "command": "train.sh --epochs 3",
    }
    return JobView(**(fields | changes))


def waiting(id: int = 13, **changes: Any) -> JobView:
    fields: dict[str, Any] = {
        "state": JobState.QUEUED,
        "reason": "needs 22.0 GiB on one card, 1.3 GiB is free: job 12 of ann holds 22.0 GiB for 1h05m",
        "reason_code": "vram",
        "cards": [],
        "attempt": 0,
        "used_vram_mib": None,
        "peak_vram_mib": None,
        "started_at": None,
        "state_s": 754,
        "ran_s": 0,
        "user": "bob",
    }
    return job(id, **(fields | changes))


def ended(id: int = 11, **changes: Any) -> JobView:
    fields: dict[str, Any] = {
        "state": JobState.FAILED,
        "reason": "exited with status 7",
        "reason_code": "exited",
        "cards": [],
        "used_vram_mib": None,
        "exit_code": 7,
        "wait_status": 7,
        "ended_at": NOW - 10,
        "state_s": 10,
    }
    return job(id, **(fields | changes))


def tenant(job_id: int = 12, **changes: Any) -> TenantView:
    fields: dict[str, Any] = {
        "job_id": job_id,
        "user": "ann",
        "account": "ann",
        "job_class": JobClass.TRAIN,
        "claim_mib": 22528,
        "charge_mib": 22528,
        "used_mib": 18739,
    }
    return TenantView(**(fields | changes))


def stranger(**changes: Any) -> StrangerView:
    fields: dict[str, Any] = {"pid": 4711, "user": "carl", "command": "python notebook.py", "used_mib": 3072}
    return StrangerView(**(fields | changes))


def card(index: int = 0, **changes: Any) -> CardView:
    fields: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA GeForce RTX 5090",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "simulated": False,
        "capacity_mib": 32607,
        "held_back_mib": 8704,
        "charged_mib": 22528,
        "foreign_mib": 0,
        "used_mib": 18739,
        "free_to_claim_mib": 10079,
        "free_for_train_mib": 1375,
        "gpu_percent": 97,
        "context_mib": None,
        "temperature_c": 64,
        "drained": None,
        "notes": [],
        "tenants": [tenant()],
        "strangers": [],
    }
    return CardView(**(fields | changes))


def node(**changes: Any) -> NodeView:
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "api": 1,
        "simulated": False,
        "host": "node1",
        "boot_id": "b",
        "pid": 100,
        "user": "ann",
        "account": "ann",
        "admin": False,
        "containment": "cgroup",
        "cards": [card()],
        "queued": 1,
        "running": 1,
    }
    return NodeView(**(fields | changes))


def failed_attempt(number: int = 1, cause: str = "out_of_memory") -> AttemptView:
    return AttemptView(
        number=number,
        cards=[0],
        started_at=NOW - 3900,
        ended_at=NOW - 3000,
        exit_code=1,
        outcome="exited with status 1",
        resumed_from=None,
        peak_vram_mib=12288,
        diagnosis=Diagnosis(
            cause=cause,
            confidence="high",
            evidence="torch.OutOfMemoryError: CUDA out of memory.",
            advice="claim 13.0 GiB or more",
        ),
    )


def detail(view: JobView | None = None, **changes: Any) -> JobDetail:
    fields: dict[str, Any] = {
        "job": view or job(),
        "attempts": [
            AttemptView(
                number=1,
                cards=[0],
                started_at=NOW - 3900,
                ended_at=None,
                exit_code=None,
                outcome="running",
                resumed_from=None,
                peak_vram_mib=19000,
            )
        ],
        "events": [EventView(id=1, at=NOW - 4000, kind="submitted", job_id=12, actor="ann", text="submitted by ann")],
        "settings": {"time limit": "24h00m", "restart": "on-failure"},
        "checkpoint": None,
        "log_path": "/var/lib/gpuqueue/runs/12.1/user/output.log",
    }
    return JobDetail(**(fields | changes))
