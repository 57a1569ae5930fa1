"""The daemon's own log: one line an event, to standard error, which systemd keeps.

systemd's journal notes the time itself, and takes a line's priority from a number before it: sd-daemon(3).
"""

import logging
import os
import sys

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def set_up(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _ForTheJournal("%(message)s")
        if goes_to_the_journal()
        else logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for chatty in ("apscheduler", "alembic", "uvicorn.error", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def goes_to_the_journal() -> bool:
    """Whether standard error is the stream that systemd opened: a shell started from a unit inherits the variable."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def marked(text: str, level: int) -> str:
    """Every line of `text` with its priority: the lines of a traceback are entries of their own."""
    return "\n".join(f"<{_PRIORITIES.get(level, 6)}>{line}" for line in text.splitlines())


class _ForTheJournal(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return marked(super().format(record), record.levelno)
