"""`gq probe`: a short supervised run that measures what the work needs, and says what to claim."""

import dataclasses
import os
import sys
from typing import Any, NamedTuple

import click

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import SubmitRequest, to_json
from gpuqueue.wire.states import FINAL_STATES, WAITING_STATES, JobClass, JobState, RestartMode
from gpuqueue.wire.units import counted, format_mib, format_seconds
from gq import client
from gq.arguments import AUTO, Between, json_option
from gq.exits import DONE, FAILED, INTERRUPTED, usage
from gq.follow import HOLD_S, POLL_S, Waits, await_end, read_piece
from gq.steps import StepCount
from gq.submit import Submit, job_options, request_of
from gq.terminal import complain, plain, print_json

STEPS, MINUTES = 10, 3.0
SPARE_S = 120  # of the time limit, which is there in case that nobody watches any more
MARGIN_MIB, MARGIN_PERCENT, ROUND_MIB = 512, 10, 256
MAX_NAME = 200


class Seen(NamedTuple):
    """`view` is the probe's last; `ours`: it ended because we had seen enough. `loaded_s`: how long it had run when its
    first step was seen."""

    view: Any
    steps: int
    ours: bool
    loaded_s: int | None = None


@click.command("probe", cls=Submit, context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@job_options
@click.option("--steps", type=click.IntRange(1), metavar="N", help=f"Stop after N steps in its log [{STEPS}].")
@click.option("--minutes", type=Between(0, 120), metavar="T", help=f"Stop after T minutes [{MINUTES:g}].")
@click.option("--submit", "go_on", is_flag=True, help="Then submit the job itself, with the claim that was found.")
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]... | -- COMMAND [ARGS]...")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    steps: int | None,
    minutes: float | None,
    go_on: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Run the first steps of a job, and say what to claim for it.

    It takes the options of `gq submit`. Without --vram it may use the most that can start now. It stops after N
    steps or T minutes, whichever comes first.
    """
    if not words:
        raise usage("nothing to probe", "gq probe train.sh, or: gq probe -- python train.py")
    if asked["vram"] is None:
        asked["vram"] = AUTO  # unless the script says more
    job = request_of(ctx, list(words), asked | {"as_user": None})
    if job.vram_mib == 0 and not job.vram_auto:
        raise usage("--vram 0 is a job without a card: there is nothing to measure")
    limit_s = max(round((minutes or MINUTES) * 60), 1)
    probe = client.ask_again("POST", "/v1/jobs", to_json(_probe_of(job, limit_s))).job
    print(plain(f"gq: job {probe.id} probes with {format_mib(probe.vram_mib)}"), file=sys.stderr)
    try:
        seen = _watch(probe.id, steps or STEPS, limit_s, StepCount(job.resume is not None))
    except KeyboardInterrupt:
        _cancel(probe.id)
        print(f"\ngq: job {probe.id}, the probe, is cancelled", file=sys.stderr)
        return INTERRUPTED
    return _told(job, seen, go_on, as_json)


def _probe_of(job: SubmitRequest, limit_s: int) -> SubmitRequest:
    """The same work as a short job that is not started again."""
    program = job.script_name or os.path.basename(job.command[0])  # noqa: PTH119 - a name
    claim_mib = _largest_mib(job) if job.vram_auto else job.vram_mib
    return dataclasses.replace(
        job,
        idempotency_key=os.urandom(16).hex(),
        vram_mib=claim_mib,
        vram_auto=False,
        name=f"probe: {job.name or program}"[:MAX_NAME],
        restart=RestartMode.NEVER,
        grow=False,
        time_s=limit_s + SPARE_S,
    )


def _largest_mib(job: SubmitRequest) -> int:
    """The most on a card that may start now within the quota. Raises a GpuqueueError where that is nothing."""
    light = job.job_class == JobClass.LIGHT
    account = job.account or client.get("/v1/node").account
    cards = [
        (card.free_to_claim_mib if light else card.free_for_train_mib)
        for card in client.get("/v1/cards")
        if not card.drained
        and (not job.gpu_indexes or card.index in job.gpu_indexes)
        and (job.gpu_type or "").lower() in card.name.lower()
    ]
    free_mib = max(cards, default=0)
    for quota in client.get("/v1/quotas"):
        if quota.account == account:
            left_mib = quota.light_mib - quota.light_used_mib if light else quota.train_mib - quota.train_used_mib
            free_mib = min(free_mib, left_mib // job.gpus)
    if free_mib <= 0:
        raise usage("nothing could start now, so the probe needs to know what it may use", "say --vram 22G: it waits")
    return int(free_mib)


def _watch(job: int, steps: int, limit_s: int, count: StepCount) -> Seen:
    """Until the probe has shown enough, and is stopped as any job is, or has ended by itself."""
    waits, attempt, offset = Waits(), 0, 0
    loaded_s: int | None = None
    while True:
        view = await_end(job, 0)
        if view.attempt != attempt:
            attempt, offset = view.attempt, 0
        silent = view.attempt == 0
        if not silent:
            piece = client.patiently(lambda: read_piece(job, attempt, offset, wait_s=POLL_S))  # noqa: B023 - called at once
            count.feed(piece.data)
            if count.steps and loaded_s is None:
                loaded_s = view.ran_s
            offset, silent = piece.next_offset, not piece.data and piece.ended
        if view.state in FINAL_STATES and silent:
            return Seen(view, count.steps, ours=False, loaded_s=loaded_s)
        if view.state in WAITING_STATES:
            waits.say(view)
        elif view.state == JobState.RUNNING and (count.steps >= steps or view.ran_s >= limit_s):
            _cancel(job)
            while view.state not in FINAL_STATES:
                view = await_end(job, HOLD_S)
            return Seen(view, count.steps, ours=view.state == JobState.CANCELLED, loaded_s=loaded_s)
        if silent:
            await_end(job, POLL_S)


def _cancel(job: int) -> None:
    try:
        client.post(f"/v1/jobs/{job}/cancel")
    except GpuqueueError as error:
        if error.code != ErrorCode.CONFLICT:  # it has ended by itself meanwhile
            raise


def _told(job: SubmitRequest, seen: Seen, go_on: bool, as_json: bool) -> int:
    view = seen.view
    whole = view.state == JobState.SUCCEEDED
    peak_mib = view.peak_vram_mib or 0
    if not whole and not seen.ours:
        return _failed(view)
    if peak_mib == 0:
        hint = "probe longer: --steps, --minutes; `gq doctor` says whether the driver shows it"
        complain(f"no VRAM of job {view.id} was seen in {format_seconds(view.ran_s)}", hint)
        return FAILED
    claim_mib = claim_for(peak_mib)
    over = f"the whole run of {format_seconds(view.ran_s)}"
    if not whole:
        steps = f"{counted(seen.steps, 'step')} in " if seen.steps else "no step that its log shows, in "
        over = f"{steps}{format_seconds(view.ran_s)}; evaluation, saving and longer inputs later on were not seen"
    rose_mib = 0 if whole else _still_rising(seen)
    if not as_json:
        more = " or more" if rose_mib else ""
        print(f"peak {format_mib(peak_mib)} over {over}\nuse --vram {claim_mib / 1024:g}G{more}", flush=True)
    if rose_mib:
        hint = "probe longer (--steps, --minutes), or look for what keeps tensors alive"
        left = "; not submitted" if go_on else ""
        complain(f"it was still rising: by {format_mib(rose_mib)} in the second half of its steps{left}", hint)
    submitted = None
    if go_on and not rose_mib:
        real = dataclasses.replace(job, vram_mib=claim_mib, vram_auto=False)
        submitted = client.ask_again("POST", "/v1/jobs", to_json(real)).job
        if not as_json:
            print(plain(f"job {submitted.id} submitted: {submitted.name}, {format_mib(claim_mib)}"))
    if as_json:
        found = {"probe": view.id, "peak_vram_mib": peak_mib, "vram_mib": claim_mib, "steps": seen.steps}
        print_json(found | {"ran_s": view.ran_s, "whole": whole, "rose_mib": rose_mib, "job": submitted})
    return FAILED if go_on and rose_mib else DONE


def _still_rising(seen: Seen) -> int:
    """By how many MiB the second half of the steps peaked above the first; 0 where that is less than the margin covers,
    or too little was seen to tell. Loading does not count: where no step was seen, the run's first half is left out."""
    curve = client.get(f"/v1/jobs/{seen.view.id}").attempts[-1].curve
    end_s = max((at for at, _ in curve), default=0)
    begin_s = end_s / 2 if seen.loaded_s is None else seen.loaded_s
    middle_s = (begin_s + end_s) / 2
    early = [mib for at, mib in curve if begin_s <= at <= middle_s]
    late = [mib for at, mib in curve if at > middle_s]
    if not early or not late:
        return 0
    rose_mib = max(late) - max(early)
    return rose_mib if rose_mib > _margin_mib(max(early)) // 2 else 0


def claim_for(peak_mib: int) -> int:
    """The claim that a measured peak asks for, in MiB: a margin for what was not seen, and a round number."""
    return -(-(peak_mib + _margin_mib(peak_mib)) // ROUND_MIB) * ROUND_MIB


def _margin_mib(peak_mib: int) -> int:
    return max(MARGIN_MIB, -(-peak_mib * MARGIN_PERCENT // 100))


def _failed(view: Any) -> int:
    """It did not get as far as we wanted to see: what is known of why."""
    attempts = client.get(f"/v1/jobs/{view.id}").attempts
    diagnosis = attempts[-1].diagnosis if attempts else None
    advice = diagnosis.advice if diagnosis else f"`gq logs {view.id}` has its output"
    peak = f"; it held {format_mib(view.peak_vram_mib)} at most" if view.peak_vram_mib else ""
    complain(f"the probe, job {view.id}, {view.state}: {view.reason}{peak}", advice)
    return FAILED
