"""The words for what a job is and what it is doing: shared by daemon, shim and `gq`."""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is in its life. The first five are open, the last four final."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        return self in FINAL_STATES

    @property
    def active(self) -> bool:
        """True while an attempt of the job exists or is being made: it holds a lease."""
        return self in ACTIVE_STATES


FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.STOPPED})
ACTIVE_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
WAITING_STATES = frozenset({JobState.QUEUED, JobState.BACKOFF})


class JobClass(StrEnum):
    """`light` (inference, small experiments) may hold the held-back VRAM by right; `train` may not."""

    TRAIN = "train"
    LIGHT = "light"


class RestartMode(StrEnum):
    """When an attempt's end leads to another attempt (rule R1)."""

    ON_FAILURE = "on-failure"
    NEVER = "never"
    ALWAYS = "always"


class RunState(StrEnum):
    """How one attempt ended. A job that failed and is tried again leaves attempts that `failed`."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    REQUEUED = "requeued"  # free of charge: reboot, lost card, its owner's `gq requeue`
