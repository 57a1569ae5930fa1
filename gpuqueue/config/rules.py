"""What single values allow and together make no sense."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuqueue.config.settings import Settings
from gpuqueue.wire.units import format_seconds


@dataclass(frozen=True, slots=True)
class Contradiction:
    """`keys` are those that disagree: whichever the file has is the one to name."""

    keys: tuple[tuple[str, str], ...]
    problem: str
    way_out: str


def contradiction(settings: Settings) -> Contradiction | None:
    """The first one, or None."""
    return next(_contradictions(settings), None)


def _contradictions(settings: Settings) -> Iterator[Contradiction]:
    limits, restart, idle = settings.policy.limits, settings.policy.restart, settings.policy.idle
    for section, low, high, low_s, high_s in (
        ("limits", "default_time", "max_time", limits.default_s, limits.max_s),
        ("limits", "default_grace", "max_grace", limits.default_grace_s, limits.max_grace_s),
        ("restart", "backoff_base", "backoff_max", restart.backoff_base_s, restart.backoff_max_s),
    ):
        if low_s > high_s:
            problem = f"{low} ({format_seconds(low_s)}) is more than {high} ({format_seconds(high_s)})"
            yield Contradiction(((section, low), (section, high)), problem, f"lower {low} or raise {high}")
    for key, window_s in (
        ("train_window", idle.train_window_s),
        ("light_window", idle.light_window_s),
        ("interactive_window", idle.interactive_window_s),
    ):
        if window_s < 4 * settings.sample_s:
            problem = f"{format_seconds(window_s)} is shorter than four samples of {format_seconds(settings.sample_s)}"
            yield Contradiction((("idle", key),), problem, 'raise it; to stop nobody, write mode = "report"')
    if limits.default_s == 0:
        yield Contradiction((("limits", "default_time"),), "a job could not run at all", "write for example 24h")
    if not 1 <= settings.sample_s <= 10:  # O1: two samples and a decision within 30 s
        yield Contradiction(
            (("daemon", "sample"),), "must be from 1s to 10s, so that overuse is seen in time", 'write "5s"'
        )
    if settings.log_cap_mib < 1:
        yield Contradiction((("logs", "cap"),), "a log needs at least 1 MiB", 'write "1G"')
