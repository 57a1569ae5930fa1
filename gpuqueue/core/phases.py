"""A job's life: the one table of legal moves."""

from collections.abc import Mapping

from gpuqueue.wire.states import JobState

_ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.STOPPED})
_AGAIN = frozenset({JobState.QUEUED, JobState.BACKOFF})

MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED, JobState.STOPPED}),
    JobState.BACKOFF: frozenset({JobState.STARTING, JobState.QUEUED, JobState.CANCELLED, JobState.STOPPED}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING}) | _AGAIN | _ENDS,
    JobState.RUNNING: frozenset({JobState.STOPPING}) | _AGAIN | _ENDS,
    JobState.STOPPING: _AGAIN | _ENDS,
    **dict.fromkeys(_ENDS, frozenset({JobState.QUEUED})),  # by `gq requeue` of its owner alone
}


def legal(before: JobState, after: JobState) -> bool:
    """True where a job may move from one state to the other; staying is no move."""
    return after in MOVES[before]
