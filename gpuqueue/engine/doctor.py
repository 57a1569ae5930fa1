"""Use case: is all well? One line a check, with the way out where it is not."""

import time
from collections.abc import Iterator

from gpuqueue.engine import cap
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.jobs import CheckView
from gpuqueue.wire.units import counted, format_mib

CONTAINMENT = {
    "systemd": ("ok", "every attempt is a transient systemd unit"),
    "cgroup": ("ok", "every attempt has a cgroup of its own, killed as a whole"),
    "session": ("note", "no cgroup can be made here: a job's processes are found by descent and by their marker"),
}


def checks(engine: Engine) -> list[CheckView]:
    return [*_daemon(engine), *_kernel_log(engine), *_cards(engine), *_people(engine)]


def _daemon(engine: Engine) -> Iterator[CheckView]:
    if engine.broken:
        text = f"the last tick failed: {engine.broken.message}"
        yield CheckView(name="supervision", level="fail", text=text, hint=engine.broken.hint)
    else:
        yield CheckView(name="supervision", level="ok", text=f"running, {counted(engine.ticks, 'tick')} so far")
    level, text = CONTAINMENT[engine.backend.containment]
    text += "" if engine.backend.limits_memory else "; --mem is not enforced, without a memory controller"
    yield CheckView(name="containment", level=level, text=f"{engine.backend.containment}: {text}")


def _kernel_log(engine: Engine) -> Iterator[CheckView]:
    if engine.backend.kernel_lines(time.time()) is None:
        yield CheckView(
            name="kernel log",
            level="note",
            text="not readable: Xid errors, and who was killed for want of host memory, are guessed from other signs",
            hint="in a container: give it /dev/kmsg of the machine"
            if engine.daemon_uid == 0
            else "root may read it, and everybody where kernel.dmesg_restrict is 0",
        )


def _cards(engine: Engine) -> Iterator[CheckView]:
    snapshot = engine.snapshot
    if engine.cards.simulated:
        yield CheckView(name="cards", level="note", text="SIMULATED: no GPU is used, jobs are not really training")
    if snapshot.cards_fault:
        yield CheckView(
            name="driver",
            level="fail",
            text=f"{snapshot.cards_fault}; running jobs are left alone, nothing starts that needs a card",
            hint="`nvidia-smi` must work first; after a driver upgrade: reboot, or reload the nvidia module",
        )
    for card in snapshot.cards:
        text = f"{card.name}, {format_mib(card.capacity_mib)}, {format_mib(card.held_back_mib)} held back"
        level = "ok"
        if card.drained:
            level, text = "fail", f"{text}; drained: {card.drained}"
        elif card.hidden:
            level, text = "warn", f"{text}; {card.notes[0]}"
        yield CheckView(name=f"card {card.index}", level=level, text=text)
    yield cap.check()


def _people(engine: Engine) -> Iterator[CheckView]:
    if engine.daemon_uid != 0:
        yield CheckView(
            name="accounts",
            level="note",
            text="the daemon runs without root: it serves its own login alone, and accounts are what GQ_ACCOUNT says",
            hint="for a shared machine install it as root: docs/install.md",
        )
    elif engine.settings.shared_logins:
        shared = ", ".join(sorted(engine.settings.shared_logins))
        yield CheckView(
            name="accounts", level="note", text=f"under {shared} the account is what people say it is (trust-based)"
        )
    else:
        yield CheckView(name="accounts", level="ok", text="every account is a Unix login, told by the kernel")
