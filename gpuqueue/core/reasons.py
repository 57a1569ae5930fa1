"""Every "why not" and every "why ended": a code, its fields, and its one sentence (rules S5, Z1).

A reason is data until somebody reads it: the store keeps code and fields, `sentence` makes the words. The
sentence declares the fields: tests prove that every code has one, and that whatever core decides fills it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from string import Formatter

from gpuqueue.wire.units import counted, format_mib, format_seconds


class ReasonCode(StrEnum):
    # why a job waits (verdicts)
    NEXT = "next"  # starts at the coming tick
    VRAM = "vram"
    FOREIGN_VRAM = "foreign_vram"
    HELD_BACK = "held_back"
    QUOTA = "quota"
    BEHIND = "behind"  # a job of its class before it is blocked by VRAM (S4)
    BACKOFF = "backoff"
    HOLD = "hold"
    CHECKPOINTS = "checkpoints"  # another job saves into the same directory (R2)
    DRAINED = "drained"
    NO_CARD_MATCHES = "no_card_matches"
    TENANTS = "tenants"
    IMPOSSIBLE = "impossible"  # a later change made it so (Q5)
    CARDS_UNREADABLE = "cards_unreadable"
    # why a job is refused at submit (Q5)
    NO_EXCLUSIVE = "no_exclusive"
    ONE_CARD_ONLY = "one_card_only"
    TOO_MANY_CARDS = "too_many_cards"
    CLAIM_OVER_CARD = "claim_over_card"
    CLAIM_OVER_TRAIN_PART = "claim_over_train_part"
    CLAIM_OVER_LIGHT_PART = "claim_over_light_part"
    CLAIM_OVER_QUOTA = "claim_over_quota"
    NO_QUOTA = "no_quota"
    # what is said of a running job
    OVER_CLAIM = "over_claim"  # charged for what is measured (O1)
    # why a job ended or was stopped
    SUCCEEDED = "succeeded"
    EXITED = "exited"
    SIGNALLED = "signalled"
    LOST = "lost"
    FAILED_START = "failed_start"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    IDLE = "idle"
    STALLED = "stalled"
    OVERUSE = "overuse"
    OVERUSE_QUOTA = "overuse_quota"
    LIMIT = "limit"
    CRASH_LOOP = "crash_loop"
    TOO_MANY_RESTARTS = "too_many_restarts"
    OUT_OF_MEMORY = "out_of_memory"
    VICTIM = "victim"  # of a neighbour or a stranger (O2)
    NO_RETRY = "no_retry"  # the cause says that another try would fail the same way (R5)
    REBOOT = "reboot"
    CARD_LOST = "card_lost"


@dataclass(frozen=True, slots=True)
class Reason:
    code: ReasonCode
    fields: Mapping[str, str | int] = field(default_factory=dict)


# Field names end in their unit: `_mib` is printed as GiB, `_s` as a duration, the rest as it is; `{restarts:time}` is a
# number with its noun. `found` is what the attempt was found to have died of, with its colon, or nothing.
SENTENCES: dict[ReasonCode, str] = {
    ReasonCode.NEXT: "starts next",
    ReasonCode.VRAM: "needs {need_mib} on one card, {free_mib} is free for {job_class} jobs: {holders}",
    ReasonCode.FOREIGN_VRAM: "needs {need_mib} on one card: {foreign_mib} of card {card} is held outside the queue by {strangers}",
    ReasonCode.HELD_BACK: "needs {need_mib}, {free_mib} is free for {job_class} jobs: {held_back_mib} of card {card} is held back for light jobs; {holders}",
    ReasonCode.QUOTA: "{account} uses {used_mib} of its {nominal_mib} {job_class} quota; {need_mib} more does not fit: {holders}",
    ReasonCode.BEHIND: "behind job {head} of {head_account}, which needs {head_need_mib} first: {holders}",
    ReasonCode.BACKOFF: "{last}; next try in {wait_s} (failures in a row: {failures})",
    ReasonCode.HOLD: "on hold by {actor}",
    ReasonCode.CHECKPOINTS: "job {writer} of {writer_account} saves into the same checkpoint directory: starts when that job has ended",
    ReasonCode.DRAINED: "card {card} is drained: {why}",
    ReasonCode.NO_CARD_MATCHES: "no card matches {wanted}",
    ReasonCode.TENANTS: "card {card} already has {tenants:tenant}, the most the admin allows: {holders}",
    ReasonCode.IMPOSSIBLE: "can no longer run here: {why}",
    ReasonCode.CARDS_UNREADABLE: "the cards cannot be read: {why}",
    ReasonCode.NO_EXCLUSIVE: "a card for one job alone (--exclusive) is not offered by this release: ask for the VRAM that the job needs",
    ReasonCode.ONE_CARD_ONLY: "{cards:card} for one job are not offered by this release: ask for one",
    ReasonCode.TOO_MANY_CARDS: "{cards:card} are more than the {node_cards} that this node has",
    ReasonCode.CLAIM_OVER_CARD: "{need_mib} is more than any card has: the largest holds {capacity_mib}",
    ReasonCode.CLAIM_OVER_TRAIN_PART: "{need_mib} is more than train jobs may hold on any card: {most_mib}, since {held_back_mib} of its {capacity_mib} is held back for light jobs",
    ReasonCode.CLAIM_OVER_LIGHT_PART: "{need_mib} is more than light jobs may hold on any card: {most_mib}, the part held back for them of {capacity_mib}",
    ReasonCode.CLAIM_OVER_QUOTA: "{need_mib} is more than {account} may ever hold with {job_class} jobs: the quota is {nominal_mib}",
    ReasonCode.NO_QUOTA: "{account} has no quota for {job_class} jobs; an admin sets one with gq quota set {account}",
    ReasonCode.OVER_CLAIM: "declared {claim_mib}, uses {used_mib}: charged for that, and the next attempt will claim it",
    ReasonCode.SUCCEEDED: "finished",
    ReasonCode.EXITED: "exited with status {status}{found}",
    ReasonCode.SIGNALLED: "killed by {signal}, not by gpuqueue{found}",
    ReasonCode.LOST: "its exit status is lost: {why}",
    ReasonCode.FAILED_START: "could not start: {why}",
    ReasonCode.CANCELLED: "cancelled by {actor}",
    ReasonCode.REQUEUED: "requeued by {actor}",
    ReasonCode.IDLE: "idle for {idle_s}: GPU {gpu_percent} %, {cpu_cores} CPU cores, {io} of I/O on average; limit {window_s}",
    ReasonCode.STALLED: "GPU idle for {idle_s} while CPU or I/O was busy ({cpu_cores} cores, {io}); limit {window_s}",
    ReasonCode.OVERUSE: "declared {claim_mib}, used {used_mib} while card {card} was over-committed",
    ReasonCode.OVERUSE_QUOTA: "declared {claim_mib}, used {used_mib}: {limit} leaves it {allowed_mib}",
    ReasonCode.LIMIT: "ran {ran_s}, its time limit is {limit_s}",
    ReasonCode.CRASH_LOOP: "failed {failures:time} in a row without a newer checkpoint; last: {last}",
    ReasonCode.TOO_MANY_RESTARTS: "restarted {restarts:time} within 24h; last: {last}",
    ReasonCode.OUT_OF_MEMORY: "ran out of GPU memory: {advice}",
    ReasonCode.VICTIM: "ran out of GPU memory that was promised to it: {offender}",
    ReasonCode.NO_RETRY: "{last}; not retried: {advice}",
    ReasonCode.REBOOT: "the machine restarted",
    ReasonCode.CARD_LOST: "card {card} failed: {why}",
}


def fields_of(code: ReasonCode) -> frozenset[str]:
    """The names of the fields that a reason of this code carries."""
    return frozenset(name for _, name, _, _ in Formatter().parse(SENTENCES[code]) if name)


def sentence(reason: Reason) -> str:
    """The reason as one line of plain words. A field that is missing (kept by an older release) reads "?"."""
    parts = Formatter().parse(SENTENCES[reason.code])
    return "".join(
        said + (_words(name, noun, reason.fields.get(name, "?")) if name else "") for said, name, noun, _ in parts
    )


def _words(name: str, noun: str | None, value: str | int) -> str:
    if not isinstance(value, int):
        return f"{value} {noun}s" if noun else value
    if name.endswith("_mib"):
        return format_mib(value)
    if name.endswith("_s"):
        return format_seconds(value)
    return counted(value, noun) if noun else str(value)
