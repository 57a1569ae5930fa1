"""Judges a full card: whose fault it was, and whether another attempt could fit.

The rules, in this order, on capacity C, free F, allocated A, held but unused U, asked Q, allowed W (O2, R5):
  1. W below 0.98 C, or a cap of ours that own + Q exceeds: the cap.
  2. Q above 4 C: a bug in the program. Q above C: it can never fit.
  3. F at least Q + 50 MiB: the message contradicts itself: low confidence.
  4. others hold more than max(1 GiB, 12 % of C), and the job stayed within its claim: a neighbour.
  5. U + F at least Q, and U at least 10 % of C: fragmentation.
  6. a curve that rises all along: a leak.
  7. else the card was too small for the job.
"""

from dataclasses import replace

from gpuqueue.diagnose.clue import Clue
from gpuqueue.diagnose.curve import Growth, growth_in_log, steady_growth
from gpuqueue.diagnose.finding import MIB_PER_GIB, Cause, Confidence, Evidence, Finding, Phase, Retry, gib
from gpuqueue.diagnose.torch_message import TorchMessage, read

_CAP_PERCENT = 98
_CAP_REACHED_PERCENT = 90
_BUG_FACTOR = 4
_CONTRADICTION_MIB = 51
_FOREIGN_MIN_MIB = 1024
_FOREIGN_PERCENT = 12
_FOREIGN_SURE_PERCENT = 25
_FOREIGN_MIN_WITH_CLAIM_MIB = 512
_FRAGMENT_PERCENT = 10
_FRAGMENT_SURE_PERCENT = 20
_CONTEXT_MIB = 1024  # CUDA context, libraries, NCCL: what PyTorch does not count
_CLAIM_MARGIN_PERCENT = 105

_LESS = "a smaller micro-batch, gradient checkpointing, shorter sequences or 4-bit weights"
_PHASE_ADVICE = {
    Phase.load: "It happened while loading: load in 16 bit or 4 bit straight to the card, not twice.",
    Phase.evaluation: "It happened in evaluation: a smaller eval batch, eval_accumulation_steps.",
    Phase.saving: "It happened while saving: gather the state on the CPU, or save sharded.",
    Phase.training: None,
}


def judge(clue: Clue, lines: tuple[str, ...], evidence: Evidence, phase: Phase | None) -> Finding:
    """The finding for a message that says that the card was full."""
    message = read(lines, clue.line)
    growth = None if phase is Phase.load else (steady_growth(evidence.curve) or growth_in_log(lines[: clue.line]))
    if message is None or (message.capacity_mib is None and not message.absurd):
        return _without_numbers(clue, message, evidence, phase, growth)
    finding = _with_numbers(clue.text, message, evidence, phase, growth)
    return replace(finding, needed_mib=message.needed_mib, held_mib=None if message.absurd else message.own_mib)


def judge_server_start(clue: Clue, evidence: Evidence, phase: Phase | None) -> Finding | None:
    """A server that takes a share of the card, and by that more than its claim, is no neighbour's victim.

    None where the claim is unknown or covers what it wants.
    """
    claim, wanted, total = evidence.claim_mib, clue.fields.get("wanted"), clue.fields.get("total")
    if claim is None or wanted is None or total is None:
        return None
    wanted_mib, total_mib = (int(float(size) * MIB_PER_GIB) for size in (wanted, total))
    if wanted_mib <= claim or total_mib <= 0:
        return None
    return Finding(
        Cause.out_of_memory,
        Confidence.high,
        clue.text,
        f"It wants {gib(wanted_mib)} of the card, its claim is {gib(claim)}: set gpu_memory_utilization to "
        f"{claim / total_mib:.2f} or less, or claim more.",
        Retry.no,
        phase,
    )


def _with_numbers(
    text: str, message: TorchMessage, evidence: Evidence, phase: Phase | None, growth: Growth | None
) -> Finding:
    capacity, asked = message.capacity_mib or 0, message.asked_mib
    if message.absurd or asked > _BUG_FACTOR * capacity:
        size = "more than an exabyte" if message.absurd else gib(asked)
        return Finding(
            Cause.program_error,
            Confidence.high,
            text,
            f"It asked for {size} at once, far beyond any card: a wrong shape or index in the program.",
            Retry.no,
            phase,
        )
    capped = _over_cap(text, message, evidence, phase)
    if capped is not None:
        return capped
    if asked > capacity:
        return _too_small(text, message, evidence, phase, Confidence.high)
    free, unused = message.free_mib or 0, message.unused_mib or 0
    if message.free_mib is not None and free >= asked + _CONTRADICTION_MIB:
        return Finding(
            Cause.out_of_memory,
            Confidence.low,
            text,
            f"{gib(free)} were free though only {gib(asked)} were asked for: VRAM was freed meanwhile, an "
            "unseen limit applies, or the host could not back it. One more attempt will tell.",
            Retry.once,
            phase,
        )
    taken = _taken_by_others(text, message, evidence, phase)
    if taken is not None:
        return taken
    if unused + free >= asked and unused * 100 >= _FRAGMENT_PERCENT * capacity:
        sure = unused * 100 >= _FRAGMENT_SURE_PERCENT * capacity
        known = message.knows_expandable_segments
        option = "expandable_segments:True" if known else "max_split_size_mb:128"
        return Finding(
            Cause.fragmentation,
            Confidence.high if sure else Confidence.medium,
            text,
            f"PyTorch held {gib(unused)} in pieces too small for {gib(asked)}: set "
            f"PYTORCH_CUDA_ALLOC_CONF={option}; sequences of similar length help too.",
            Retry.with_expandable_segments if known else Retry.once,
            phase,
        )
    if growth is not None:
        return _leak(text, growth, phase)
    return _too_small(text, message, evidence, phase, Confidence.high)


def _over_cap(text: str, message: TorchMessage, evidence: Evidence, phase: Phase | None) -> Finding | None:
    capacity, allowed = message.capacity_mib or 0, message.allowed_mib
    if allowed is not None and allowed * 100 < _CAP_PERCENT * capacity:
        limit = allowed
    elif _reaches_cap(message, evidence):
        limit = evidence.cap_mib or 0
    else:
        return None
    needed = (message.own_mib or 0) + message.asked_mib
    return Finding(
        Cause.quota_cap,
        Confidence.high,
        text,
        f"The job's own cap of {gib(limit)} stopped it, the card had room: it needed about {gib(needed)}"
        f"{_or_claim(needed, message, evidence)}.",
        Retry.no,
        phase,
    )


def _reaches_cap(message: TorchMessage, evidence: Evidence) -> bool:
    cap, own = evidence.cap_mib, message.own_mib
    if cap is None or own is None or message.free_mib is None:
        return False
    # Where the card had the room that was asked for, only a cap can have said no (torch 2.1 names none).
    return own + message.asked_mib > cap and message.free_mib >= message.asked_mib


def _taken_by_others(text: str, message: TorchMessage, evidence: Evidence, phase: Phase | None) -> Finding | None:
    """Rule 4. What NVML saw counts more than what the message leaves over."""
    capacity, own = message.capacity_mib or 0, message.own_mib
    if own is None:
        return None
    pids = _strangers(message, evidence)
    siblings = sum(mib for pid, mib in message.processes if pid in evidence.own_pids)
    foreign = capacity - (message.free_mib or 0) - own - siblings
    seen = [mib for pid, _, mib in evidence.neighbours if pid not in evidence.own_pids]
    if seen:
        foreign = sum(seen)
    claim = evidence.claim_mib
    needed = own + siblings + message.asked_mib
    threshold = max(_FOREIGN_MIN_MIB, capacity * _FOREIGN_PERCENT // 100)
    if claim is not None:
        if needed > claim:
            return None  # it outgrew what was promised to it, whoever else was there
        threshold = _FOREIGN_MIN_WITH_CLAIM_MIB
    if foreign <= threshold:
        return None
    sure = claim is not None or bool(seen) or foreign * 100 >= _FOREIGN_SURE_PERCENT * capacity
    names = _named(evidence, pids)
    promise = f" of the {gib(claim)} promised to it" if claim is not None else ""
    return Finding(
        Cause.neighbour,
        Confidence.high if sure else Confidence.medium,
        text,
        f"Others held {gib(foreign)} of the card's {gib(capacity)}{names}; the job itself needed "
        f"{gib(needed)}{promise}. Restart it when they are gone; nothing in the job needs to change.",
        Retry.free,
        phase,
        pids,
    )


def _strangers(message: TorchMessage, evidence: Evidence) -> tuple[int, ...]:
    """The processes that the message or NVML names and that are not the job's own.

    Inside a container the job's own process is listed like a stranger, and no "this process" is named; its
    size is then what PyTorch holds plus a context.
    """
    named = [(pid, mib) for pid, mib in message.processes if pid not in evidence.own_pids]
    own = message.own_mib or 0
    if message.this_process_mib is None:
        own_like = [pid for pid, mib in named if own <= mib <= own + _CONTEXT_MIB]
        named = [(pid, mib) for pid, mib in named if pid not in own_like[:1]]
    seen = [pid for pid, _, _ in evidence.neighbours if pid not in evidence.own_pids]
    return tuple(dict.fromkeys([pid for pid, _ in named] + seen))


def _named(evidence: Evidence, pids: tuple[int, ...]) -> str:
    owners = {pid: f"{pid} of {owner}, {gib(mib)}" for pid, owner, mib in evidence.neighbours}
    named = [owners.get(pid, str(pid)) for pid in pids]
    return f" (process {'; process '.join(named)})" if named else ""


def _or_claim(needed_mib: int, message: TorchMessage, evidence: Evidence) -> str:
    """Ends a sentence on what it needed: how much to claim, if that much may be claimed, or how to need less."""
    claim_mib = _claim_for(needed_mib)
    if evidence.largest_claim_mib is not None and claim_mib > evidence.largest_claim_mib:
        return f", and such a job may claim no more than {gib(evidence.largest_claim_mib)} here: use {_LESS}"
    if message.capacity_mib is not None and claim_mib > message.capacity_mib:
        return f", on a card of {gib(message.capacity_mib)}: use {_LESS}"
    return f": claim {gib(claim_mib)} or more, or use {_LESS}"


def _claim_for(needed_mib: int) -> int:
    """What to claim for that: a margin more, rounded up to a tenth of a GiB as claims are printed."""
    tenths = -(-needed_mib * _CLAIM_MARGIN_PERCENT * 10 // (100 * MIB_PER_GIB))
    return -(-tenths * MIB_PER_GIB // 10)


def _too_small(
    text: str, message: TorchMessage, evidence: Evidence, phase: Phase | None, confidence: Confidence
) -> Finding:
    own, asked, claim = message.own_mib, message.asked_mib, evidence.claim_mib
    outgrown = own is not None and claim is not None and own + asked > claim
    if own is None:
        advice = f"It asked for {gib(asked)} more than there was: use {_LESS}."
    elif claim is not None and outgrown:
        way_out = _or_claim(own + asked, message, evidence)
        advice = f"It held {gib(own)} and asked for {gib(asked)} more, beyond its claim of {gib(claim)}{way_out}."
    else:
        card = f" on a card of {gib(message.capacity_mib)}" if message.capacity_mib is not None else ""
        advice = f"It held {gib(own)} and asked for {gib(asked)} more{card}: use {_LESS}."
    if not outgrown and asked <= (message.free_mib or 0) + (message.unused_mib or 0):
        advice += " A near miss: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may be enough."
    return Finding(Cause.out_of_memory, confidence, text, advice + _during(phase), Retry.no, phase)


def _during(phase: Phase | None) -> str:
    advice = _PHASE_ADVICE[phase] if phase is not None else None
    return f" {advice}" if advice else ""


def _leak(text: str, growth: Growth, phase: Phase | None) -> Finding:
    slope = "" if growth.mib_per_hour is None else f", {growth.mib_per_hour} MiB an hour"
    return Finding(
        Cause.leak,
        Confidence.high if growth.mib_per_hour is not None else Confidence.medium,
        text,
        f"VRAM grew all along, from {gib(growth.first_mib)} to {gib(growth.last_mib)}{slope}: something "
        "keeps tensors alive (losses summed without .item(), kept outputs, a growing cache). A retry gets "
        "as far again as memory lasts.",
        Retry.yes,
        phase,
    )


def _without_numbers(
    clue: Clue, message: TorchMessage | None, evidence: Evidence, phase: Phase | None, growth: Growth | None
) -> Finding:
    """What claim, cap, neighbours and curve tell where the message has no figures of the card."""
    if "per_process_memory_fraction" in clue.text or _peaked_at(evidence, evidence.cap_mib, _CAP_REACHED_PERCENT):
        cap = "" if evidence.cap_mib is None else f" of {gib(evidence.cap_mib)}"
        return Finding(
            Cause.quota_cap,
            Confidence.high if "per_process_memory_fraction" in clue.text else Confidence.medium,
            clue.text,
            f"The job's own cap{cap} stopped it: claim more, or use {_LESS}.",
            Retry.no,
            phase,
        )
    seen = [(pid, owner, mib) for pid, owner, mib in evidence.neighbours if pid not in evidence.own_pids]
    pids = tuple(pid for pid, _, _ in seen)
    others = sum(mib for _, _, mib in seen)
    claim, peak = evidence.claim_mib, _peak(evidence)
    if seen and claim is not None and peak is not None and peak <= claim and others >= _FOREIGN_MIN_WITH_CLAIM_MIB:
        return Finding(
            Cause.neighbour,
            Confidence.medium,
            clue.text,
            f"It had used {gib(peak)} of the {gib(claim)} promised to it while others held "
            f"{gib(others)}{_named(evidence, pids)}. Restart it when they are gone.",
            Retry.free,
            phase,
            pids,
        )
    if growth is not None:
        return _leak(clue.text, growth, phase)
    if message is not None:
        return _too_small(clue.text, message, evidence, phase, clue.wording.confidence)
    held = "" if peak is None else f" It had used {gib(peak)}."
    advice = f"{clue.advice}{held}{_during(phase)}"
    return Finding(Cause.out_of_memory, clue.wording.confidence, clue.text, advice, Retry.no, phase)


def _peak(evidence: Evidence) -> int | None:
    return max((mib for _, mib in evidence.curve), default=None)


def _peaked_at(evidence: Evidence, limit_mib: int | None, percent: int) -> bool:
    peak = _peak(evidence)
    return limit_mib is not None and peak is not None and peak * 100 >= percent * limit_mib
