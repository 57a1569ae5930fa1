"""What the admin decides: quotas, held-back VRAM, windows, limits. Every default is the rules' own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuqueue.wire.states import JobClass


class Placement(StrEnum):
    PACK = "pack"  # best fit, so that large holes stay (P1)
    SPREAD = "spread"


class Mode(StrEnum):
    STOP = "stop"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominal:
    """A quota: VRAM over the node by class, MiB. None = not set here, ask the next level (Q1)."""

    train_mib: int | None = None
    light_mib: int | None = None

    def of(self, job_class: JobClass) -> int | None:
        return self.train_mib if job_class is JobClass.TRAIN else self.light_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPolicy:
    """Q1, Q2. `held_back_mib` None means `held_back_percent` of each card, down to half a GiB."""

    held_back_percent: int = 28
    held_back_mib: int | None = None
    default: Nominal = Nominal()
    groups: Mapping[str, Nominal] = field(default_factory=dict)
    users: Mapping[str, Nominal] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)  # fair-share, default 1
    borrowing: bool = False
    half_life_s: int = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacePolicy:
    margin_mib: int = 0  # M2
    placement: Placement = Placement.PACK
    max_tenants: int | None = None
    exclusive_accounts: frozenset[str] = frozenset()
    pin: str = "index"  # or "uuid" (P2)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePolicy:
    """I1-I4. Utilisation in per mille, CPU in thousandths of a core, I/O in KiB/s: whole numbers."""

    mode: Mode = Mode.STOP
    train_window_s: int = 30 * 60
    light_window_s: int = 4 * 3600
    interactive_window_s: int = 3600
    gpu_permille: int = 30
    cpu_millicores: int = 500
    io_kib_s: int = 1024
    stalled_warn_s: int = 15 * 60
    stalled_stop_s: int | None = None  # 4 h where the admin asks
    exempt_accounts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverusePolicy:
    tolerance_mib: int = 512
    tolerance_percent: int = 5
    tight_free_mib: int = 256
    grace_s: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    backoff_base_s: int = 10
    backoff_max_s: int = 600
    crash_limit: int = 4
    per_day: int = 20
    victim_limit: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    default_s: int = 24 * 3600
    max_s: int = 7 * 24 * 3600
    default_grace_s: int = 120
    max_grace_s: int = 600
    keep_max_s: int = 24 * 3600  # the most that `gq keep` may add in all
    warn_percent: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    quota: QuotaPolicy = QuotaPolicy()
    place: PlacePolicy = PlacePolicy()
    idle: IdlePolicy = IdlePolicy()
    overuse: OverusePolicy = OverusePolicy()
    restart: RestartPolicy = RestartPolicy()
    limits: LimitPolicy = LimitPolicy()
