"""How much VRAM a job should claim, from what the same work took before, else from an estimate; and what to say of a
claim that is far from both. Never refuses: who knows better than history may claim what they like."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from gpuqueue.core.history import PastRun, Work
from gpuqueue.wire.states import RunState
from gpuqueue.wire.units import format_mib, format_seconds

RECENT = 10  # runs of the same work that count: programs change
STEADY_S = 300  # a run that was stopped counts if it ran that long: its peak is then behind it
SHORT_S = 30  # a run without a peak that ran no longer may have ended between two samples
MARGIN_MIB, MARGIN_PERCENT = 512, 10  # above a measured peak
ESTIMATE_MARGIN_PERCENT = 20  # above an estimate: 19 of 20 are not further off
STEP_MIB = 256
FAR_MIB, FAR_PERCENT = 1024, 130  # a claim is far above what would do from here on
FEWEST_PAIRS = 3
BOUNDS_PERMILLE = (500, 2000)  # a correction beyond these says that the estimate was of something else
OUT_OF_MEMORY = frozenset({"out_of_memory", "fragmentation", "leak", "quota_cap", "neighbour"})

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Runs that tell what the work takes, newest first. `exact` is False for runs of the same program with other
    arguments, or of the same script in another directory."""

    runs: tuple[PastRun, ...]
    exact: bool

    @property
    def peak_mib(self) -> int:
        return max(run.peak_mib or 0 for run in self.runs)

    def __str__(self) -> str:
        what = "" if self.exact else " like it (other arguments, or another directory)"
        peak = "peaked at" if len({run.peak_mib for run in self.runs}) == 1 else "peaked at up to"
        return f"{count(len(self.runs), 'run')}{what} {peak} {format_mib(self.peak_mib)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How an account's peaks with one family of models compare with their estimates: the median, in per mille."""

    runs: int
    permille: int

    def apply(self, mib: int) -> int:
        return mib * self.permille // 1000

    def __str__(self) -> str:
        return f"calibrated on {count(self.runs, 'run')}: × {self.permille // 1000}.{self.permille % 1000 // 10:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    mib: int
    why: str  # one sentence: what it rests on


def evidence(work: Work, runs: Iterable[PastRun]) -> Evidence | None:
    """What past runs tell of this work: those of exactly this, else of the same program with the same model on as
    many cards. Only runs that held VRAM and reached a steady state count: for one that failed early or ran out of
    memory, more is needed than it took."""
    steady = sorted((run for run in runs if _steady(run)), key=lambda run: (-run.ended_unix, -run.id))
    same = [run for run in steady if (run.work.key, run.work.cards) == (work.key, work.cards)]
    if same:
        return Evidence(runs=tuple(same[:RECENT]), exact=True)
    like = (work.program, work.cards, work.model)
    near = [run for run in steady if (run.work.program, run.work.cards, run.work.model) == like]
    return Evidence(runs=tuple(near[:RECENT]), exact=False) if near else None


def _steady(run: PastRun) -> bool:
    if not run.peak_mib or run.cause in OUT_OF_MEMORY:
        return False
    return run.state is RunState.SUCCEEDED or run.ran_s >= STEADY_S


def from_history(found: Evidence, most_mib: int | None) -> Claim:
    """The highest recent peak and a margin. `most_mib` is the largest claim that could ever run here: the margin
    gives way to it, the peak does not."""
    peak_mib = found.peak_mib
    wished_mib = _rounded(peak_mib + max(MARGIN_MIB, peak_mib * MARGIN_PERCENT // 100))
    mib, cut = _within(wished_mib, peak_mib, most_mib)
    return Claim(mib=mib, why=f"{format_mib(mib)} claimed: {found}{cut}")


def from_estimate(estimate_mib: int, correction: Correction | None, most_mib: int | None) -> Claim:
    """The estimate, corrected where this account's runs tell how, and a margin."""
    expected_mib = correction.apply(estimate_mib) if correction else estimate_mib
    percent = MARGIN_PERCENT if correction else ESTIMATE_MARGIN_PERCENT
    margin_mib = max(MARGIN_MIB, expected_mib * percent // 100)
    mib, cut = _within(_rounded(expected_mib + margin_mib), expected_mib, most_mib)
    said = f", {correction}" if correction else "; no run has shown yet how near such an estimate comes"
    claimed = f"{format_mib(mib)} claimed: no run of it yet; estimated {format_mib(estimate_mib)}"
    return Claim(mib=mib, why=f"{claimed}{said}{cut}")


def _rounded(mib: int) -> int:
    return -(-mib // STEP_MIB) * STEP_MIB


def _within(mib: int, least_mib: int, most_mib: int | None) -> tuple[int, str]:
    """The claim with as much of its margin as could ever run here, and what to say of the rest."""
    if most_mib is None or mib <= max(least_mib, most_mib):
        return mib, ""
    cut_mib = max(least_mib, most_mib)
    return cut_mib, f"; {format_mib(mib)} with the usual margin is more than could ever start here"


def remark(
    claim_mib: int, found: Evidence | None, estimate_mib: int | None = None, correction: Correction | None = None
) -> str | None:
    """One sentence on a claim that is far above or at all below what its runs took, or far from the estimate where
    there are none."""
    asked = f"you ask for {format_mib(claim_mib)}"
    if found is not None:
        if claim_mib < found.peak_mib:
            return f"{found}; {asked}: it may be stopped when a neighbour needs the difference"
        return f"{found}; {asked}" if _far_above(claim_mib, from_history(found, None).mib) else None
    if estimate_mib is None:
        return None
    expected_mib = correction.apply(estimate_mib) if correction else estimate_mib
    said = f"the estimate is {format_mib(expected_mib)}{f' ({correction})' if correction else ''}; {asked}"
    if claim_mib * (100 + ESTIMATE_MARGIN_PERCENT) // 100 < expected_mib:
        return said
    return said if _far_above(claim_mib, from_estimate(estimate_mib, correction, None).mib) else None


def _far_above(claim_mib: int, enough_mib: int) -> bool:
    return claim_mib >= enough_mib + FAR_MIB and claim_mib * 100 >= enough_mib * FAR_PERCENT


def correction(runs: Iterable[PastRun]) -> Correction | None:
    """From an account's runs with one family of models: the median of peak over estimate, within bounds. None where
    fewer than FEWEST_PAIRS steady runs have both."""
    ratios = [
        run.peak_mib * 1000 // run.estimate_mib for run in runs if _steady(run) and run.peak_mib and run.estimate_mib
    ]
    if len(ratios) < FEWEST_PAIRS:
        return None
    least, most = BOUNDS_PERMILLE
    return Correction(runs=len(ratios), permille=min(max(median_low(ratios), least), most))


def count(number: int, noun: str) -> str:
    """`six runs`, `14 runs`, `one run`."""
    word = _WORDS[number] if number < len(_WORDS) else str(number)
    return f"{word} {noun}" if number == 1 else f"{word} {noun}s"


def newest_out_of_memory(work: Work, runs: Sequence[PastRun]) -> PastRun | None:
    """The newest run of exactly this work, if that is what it died of."""
    same = _newest(work, runs)
    return same if same is not None and same.cause in OUT_OF_MEMORY else None


def told_nothing(work: Work, runs: Sequence[PastRun]) -> str | None:
    """Why the newest run of exactly this work does not count, if it does not: somebody may wonder, who has just run
    it."""
    same = _newest(work, runs)
    if same is None or same.cause in OUT_OF_MEMORY or _steady(same):
        return None
    if not same.peak_mib and same.ran_s < SHORT_S:
        return f"its newest run, job {same.job_id}, was too short to be measured: {format_seconds(same.ran_s)}"
    if not same.peak_mib:
        return f"its newest run, job {same.job_id}, held no VRAM that was measured"
    seen = f"{same.state} after {format_seconds(same.ran_s)} with a peak of {format_mib(same.peak_mib)}"
    return f"its newest run, job {same.job_id}, {seen}: too early to tell"


def _newest(work: Work, runs: Sequence[PastRun]) -> PastRun | None:
    return max((run for run in runs if run.work.key == work.key), key=lambda run: run.id, default=None)
