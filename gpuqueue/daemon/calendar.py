"""Calendar work: what belongs to a time of day, and may stumble over a clock step without harm to any job."""

import contextlib
import logging
import time
from datetime import date, datetime, timedelta
from pathlib import Path

from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]

from gpuqueue.engine.engine import Engine
from gpuqueue.wire.errors import GpuqueueError

log = logging.getLogger(__name__)

BACKUPS_KEPT = 7
HISTORY_DAYS = 3 * 365  # what runs took is worth more than their logs, and smaller
GRACE_S = 12 * 3600  # a node that slept at night does it when it wakes
CATCH_UP_S = 3600  # one that was off does it this long after the start: time to put another backup back


def calendar(engine: Engine) -> AsyncIOScheduler:
    """A started scheduler with the nightly work; shut it down with the daemon."""
    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "misfire_grace_time": GRACE_S, "max_instances": 1})
    soon = datetime.now().astimezone() + timedelta(seconds=CATCH_UP_S)
    first = {"next_run_time": soon} if night_missed(_backups(engine)) else {}
    scheduler.add_job(retention, "cron", args=(engine,), id="retention", hour=3, minute=10, **first)
    scheduler.add_job(backup, "cron", args=(engine,), id="backup", hour=3, minute=30, **first)
    scheduler.start()
    return scheduler


def night_missed(backups: Path) -> bool:
    """Whether the newest nightly copy is older than a day, or there is none yet."""
    newest = max((copy.stat().st_mtime for copy in backups.glob("nightly-*.db")), default=0)
    return time.time() - newest > 86400


def _backups(engine: Engine) -> Path:
    return Path(engine.settings.state_dir) / "backups"


async def retention(engine: Engine) -> None:
    """Forgets jobs that ended longer ago than the admin keeps them, then every run directory whose job is not known:
    a crash between the two leaves nothing for ever. One whose attempt still lives stays, and is tried again."""
    engine.store.prune(int(time.time()) - engine.settings.retention_days * 86400)
    for job_id, attempt in engine.backend.attempts():
        if engine.store.job(job_id) is None:
            with contextlib.suppress(GpuqueueError):
                engine.backend.remove(job_id, attempt)
    engine.store.prune_runs(int(time.time()) - HISTORY_DAYS * 86400)
    log.info("retention done", extra={"action": "retention"})


async def backup(engine: Engine) -> None:
    """An online copy of the database, one a day, the newest few kept."""
    directory = _backups(engine)
    directory.mkdir(mode=0o700, exist_ok=True)
    engine.store.backup(str(directory / f"nightly-{date.today().isoformat()}.db"))
    for old in sorted(directory.glob("nightly-*.db"))[:-BACKUPS_KEPT]:
        old.unlink()
    log.info("backup done", extra={"action": "backup"})
