"""What an estimate takes for granted, in sentences for the person who reads it."""

from gpuqueue.estimate.run import Run


def of(run: Run) -> tuple[str, ...]:
    """The sentences that belong to this run, most weighty first."""
    found = []
    if run.trains:
        found.append(f"every batch is {run.batch} x {run.seq_len} tokens full, padding counted")
    return tuple(found)
