"""Use case: the history of all runs, which is how a lab learns. Written as attempts end, kept longer than jobs."""

from gpuqueue.core.decisions import Finish
from gpuqueue.core.history import PastRun, work_of
from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.readings import Probe
from gpuqueue.engine.autopsy import Autopsy
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.jobs import RunView
from gpuqueue.wire.states import RunState


def keep(
    engine: Engine, job: Job, attempt: Attempt, finish: Finish, autopsy: Autopsy, probe: Probe, ended_unix: int
) -> None:
    """One attempt has ended: its row in the history."""
    request = engine.store.request(job.id)
    assert request is not None, f"job {job.id} has no request"
    run = PastRun(
        job_id=job.id,
        attempt=attempt.number,
        uid=job.uid,
        user=job.user,
        account=job.account,
        job_class=job.ask.job_class,
        name=job.name,
        command=job.command,
        work=work_of(request),
        claim_mib=attempt.claim_mib,
        estimate_mib=request.estimate.occupied_mib if request.estimate else None,
        peak_mib=attempt.peak_mib,
        ran_s=max(0, engine.clock.second - attempt.started_at),
        state=_state(job, finish, probe),
        cause=autopsy.diagnosis.cause if autopsy.likely and autopsy.diagnosis else None,
        ended_unix=ended_unix,
        estimate_parts=request.estimate.parts if request.estimate else None,
        torch=engine.backend.torch_peak(job.id, attempt.number),
    )
    engine.store.add_run(run)


def _state(job: Job, finish: Finish, probe: Probe) -> RunState:
    if finish.state.ended:
        return RunState(finish.state)
    if job.stop is not None or probe.old_boot:
        return RunState.REQUEUED
    return RunState.SUCCEEDED if probe.exit_status == 0 else RunState.FAILED


def listing(engine: Engine, caller: Caller, *, everyone: bool, limit: int, before: int | None) -> list[RunView]:
    """The caller's own runs, or everybody's, newest first. Others' commands are hidden where the admin says so (A2)."""
    runs = engine.store.runs(limit, before=before, uid=None if everyone else caller.uid)
    return [_view(run, not engine.settings.hide_commands or caller.admin or run.uid == caller.uid) for run in runs]


def _view(run: PastRun, open_to_caller: bool) -> RunView:
    return RunView(
        id=run.id,
        job_id=run.job_id,
        attempt=run.attempt,
        user=run.user,
        account=run.account,
        job_class=run.job_class,
        name=run.name,
        command=run.command if open_to_caller else "",
        model=run.work.model if open_to_caller else None,
        work=run.work.key if open_to_caller else "",
        cards=run.work.cards,
        claim_mib=run.claim_mib,
        estimate_mib=run.estimate_mib,
        peak_mib=run.peak_mib,
        ran_s=run.ran_s,
        state=run.state,
        cause=run.cause,
        ended_at=run.ended_unix,
        estimate_parts=run.estimate_parts,
        torch=run.torch,
    )
