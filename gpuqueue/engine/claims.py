"""Use case: what a job should claim. `--vram auto` takes it from history or an estimate; a claim that somebody wrote
is measured by them, and stays."""

from dataclasses import replace

from gpuqueue.core.admit import largest_claim_mib
from gpuqueue.core.claims import (
    Claim,
    Correction,
    correction,
    evidence,
    from_estimate,
    from_history,
    newest_out_of_memory,
    remark,
    told_nothing,
)
from gpuqueue.core.history import family, work_of
from gpuqueue.core.model import Ask
from gpuqueue.core.snapshot import Account
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import CalibrationView, SubmitRequest
from gpuqueue.wire.units import format_mib

RUNS_READ = 500  # of one program or family, newest first


def with_claim(engine: Engine, request: SubmitRequest, ask: Ask, account: Account) -> tuple[Ask, list[str]]:
    """The ask with its claim decided, and what to say about it. Raises GpuqueueError(INVALID) where `--vram auto` has
    nothing to go by."""
    if ask.cards == 0:
        return ask, []
    work = work_of(request)
    runs = engine.store.runs(RUNS_READ, account=account.name, program=work.program)
    found = evidence(work, runs)
    estimate_mib = request.estimate.occupied_mib if request.estimate else None
    corrected = calibration(engine, account.name, work.family) if estimate_mib and work.family else None
    if not request.vram_auto:
        said = remark(ask.claim_mib, found, estimate_mib, corrected)
        return ask, [said] if said else []
    most_mib = largest_claim_mib(ask, account, engine.snapshot.cards)
    claim: Claim
    if found is not None:
        claim = from_history(found, most_mib)
    elif estimate_mib is not None:
        claim = from_estimate(estimate_mib, corrected, most_mib)
    else:
        why = told_nothing(work, runs) or f"no run of this by {account.name} tells what it takes"
        raise GpuqueueError(
            ErrorCode.INVALID,
            f"--vram auto has nothing to go by: {why}",
            "give --vram 22G for the first run, or what `gq probe` says (--submit takes it at once)",
        )
    notes = [claim.why]
    if (silent := told_nothing(work, runs)) is not None:
        notes.append(silent)
    if (dead := newest_out_of_memory(work, runs)) is not None:
        held = f" at {format_mib(dead.peak_mib)}" if dead.peak_mib else ""
        notes.append(f"its newest run, job {dead.job_id}, ran out of memory{held}: it may need more")
    return replace(ask, claim_mib=claim.mib), notes


def calibration(engine: Engine, account: str, of_family: str) -> Correction | None:
    """How this account's peaks with that family of models compare with their estimates; None where too few tell."""
    return correction(engine.store.runs(RUNS_READ, account=account, family=of_family))


def calibration_view(engine: Engine, account: str, model: str) -> CalibrationView:
    of_family = family(model)
    found = calibration(engine, account, of_family)
    return CalibrationView(
        family=of_family, runs=found.runs if found else 0, permille=found.permille if found else 1000
    )
