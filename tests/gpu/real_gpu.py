"""What tests/gpu/run.sh runs: a real daemon, real jobs and the cards of this machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuqueue.core.readings import CardReading
from gpuqueue.gpu.nvml import NvmlCards

PROGRAMS = Path(__file__).parent / "programs"
WAIT_S = 60  # for one thing to happen; a CUDA context on a busy machine takes seconds
MARGIN_MIB = 4096  # a card with less than this free is not checked


class CheckFailed(Exception):
    """What was expected, and what was seen."""


class Queue:
    """A daemon of our own, and `gq` to talk to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {**os.environ, "GQ_SOCKET": str(directory / "socket"), "PYTHONUNBUFFERED": "1"}
        for name in [name for name in self._environment if name.startswith("CUDA_")]:
            del self._environment[name]
        options = ["--state-dir", str(directory / "state"), "--socket", str(directory / "socket")]
        (directory / "config.toml").touch()  # the defaults, whatever this machine has configured
        self.measured = self._init(directory)
        with (directory / "daemon.log").open("w") as log:
            self._daemon = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gpuqueue.daemon",
                    "serve",
                    "--config",
                    str(directory / "config.toml"),
                    *options,
                ],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        until("the daemon answers or has ended", self._settled, self._daemon_log)
        if self._daemon.poll() is not None:
            raise CheckFailed(f"the daemon did not start: {self._daemon_log()}")

    def _init(self, directory: Path) -> str:
        options = ["--config", str(directory / "config.toml"), "--state-dir", str(directory / "state")]
        done = subprocess.run(
            [sys.executable, "-m", "gpuqueue.daemon", "init", *options],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CheckFailed(f"gpuqueued init: {done.stderr.strip()}")
        return done.stdout

    def _settled(self) -> bool:
        return self._daemon.poll() is not None or self.try_gq("gpus", "--json").returncode == 0

    def _daemon_log(self) -> str:
        return (self.directory / "daemon.log").read_text()[-2000:].strip()

    def close(self) -> None:
        self.try_gq("cancel", "--all")
        deadline = time.monotonic() + WAIT_S
        while self._anything_runs() and time.monotonic() < deadline:
            time.sleep(0.2)
        self._daemon.terminate()
        self._daemon.wait(WAIT_S)

    def _anything_runs(self) -> bool:
        listed = self.try_gq("status", "--json")
        return listed.returncode == 0 and '"running"' in listed.stdout

    def try_gq(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "import sys; from gq.main import main; sys.exit(main())", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def gq(self, *arguments: str) -> str:
        done = self.try_gq(*arguments)
        if done.returncode:
            raise CheckFailed(f"gq {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, *options: str, program: str, arguments: tuple[object, ...] = ()) -> str:
        words = [sys.executable, str(PROGRAMS / program), *map(str, arguments)]
        return self.gq("submit", "-q", *options, "--", *words).strip()

    def show(self, job: str) -> Any:
        return json.loads(self.gq("show", job, "--json"))

    def log(self, job: str) -> str:
        return self.gq("logs", job)

    def card(self, index: int) -> Any:
        return next(card for card in json.loads(self.gq("gpus", "--json")) if card["index"] == index)

    def until_log(self, job: str, wanted: str) -> str:
        """The log, once it holds what is wanted."""
        until(f"job {job} says {wanted!r}", lambda: wanted in self.log(job), lambda: self._state(job))
        return self.log(job)

    def _state(self, job: str) -> str:
        seen = self.show(job)["job"]
        return f"{seen['state']} {seen['reason']}\n{self.log(job)[-1000:]}"

    def wait(self, job: str) -> int:
        return self.try_gq("wait", "-q", job).returncode


def until(what: str, holds: Callable[[], bool], seen: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise CheckFailed(f"waited {WAIT_S} s until {what}; seen: {seen()}")
        time.sleep(0.1)


def expect(holds: object, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


# the checks: each returns one sentence of what was shown


def readings(queue: Queue, card: CardReading) -> str:
    listed = queue.card(card.index)
    expect(listed["uuid"] == card.uuid, f"the daemon's card {card.index} is {listed['uuid']}, NVML's {card.uuid}")
    expect(not listed["simulated"], "the card is said to be simulated")
    expect(card.total_mib > card.reserved_mib >= 0, f"total {card.total_mib}, reserved {card.reserved_mib} MiB")
    expect(card.temperature_c is not None and 0 < card.temperature_c < 120, f"temperature {card.temperature_c}")
    held = "hidden" if card.processes is None else f"{len(card.processes)} processes"
    return (
        f"{card.name}, {card.pci_bus_id}, {card.total_mib} MiB with {card.reserved_mib} reserved,"
        f" {card.used_mib} used, {held}, {card.temperature_c} °C"
    )


def context(queue: Queue, card: CardReading) -> str:
    mib = queue.card(card.index)["context_mib"]
    expect(mib is not None and 50 <= mib <= 2048, f"context {mib} MiB; gpuqueued init said: {queue.measured}")
    explained = queue.gq("estimate", "Qwen2.5-0.5B", "--explain")
    expect("measured on this node" in " ".join(explained.split()), f"gq estimate does not go by it: {explained}")
    return f"a bare CUDA context takes {mib} MiB, and estimates go by it"


def pinning(queue: Queue, card: CardReading) -> str:
    job = queue.submit("--vram", "1G", "--gpu", str(card.index), program="hold.py", arguments=(128, 1))
    expect(queue.wait(job) == 0, f"the job failed: {queue.log(job)}")
    said = _first_json(queue.log(job))
    inside = [_normal(pci_bus_id) for pci_bus_id in said["pci_bus_ids"]]
    expect(inside == [_normal(card.pci_bus_id)], f"CUDA showed {inside}, the card is {card.pci_bus_id}")
    return f"CUDA_VISIBLE_DEVICES={said['pinned']} is {inside[0]} and nothing else, from inside CUDA"


def no_card(queue: Queue, _card: CardReading) -> str:
    job = queue.submit("--vram", "0", program="hold.py", arguments=(0, 0))
    expect(queue.wait(job) == 0, f"the job failed: {queue.log(job)}")
    inside = _first_json(queue.log(job))["pci_bus_ids"]
    expect(inside == [], f"CUDA showed {inside} to a job without VRAM")
    return "a job with --vram 0 sees no device"


def packing(queue: Queue, card: CardReading) -> str:
    on_card = ("--gpu", str(card.index), "--vram", "1G")
    jobs = [queue.submit(*on_card, program="hold.py", arguments=(512, 60)) for _ in range(2)]
    for job in jobs:
        queue.until_log(job, "holding")

    def tenants() -> dict[str, int | None]:
        return {str(tenant["job_id"]): tenant["used_mib"] for tenant in queue.card(card.index)["tenants"]}

    def measured() -> bool:
        return all((tenants().get(job) or 0) >= 512 for job in jobs)

    if queue.card(card.index)["notes"] and None in tenants().values():
        used = "the driver hides what each of them holds"
    else:
        until("both are measured on the card", measured, lambda: str(queue.card(card.index)))
        used = " and ".join(f"{tenants()[job]} MiB" for job in jobs)
        strangers = queue.card(card.index)["strangers"]
        pids = {process.pid for process in card.processes or ()}
        expect(all(s["pid"] in pids for s in strangers), f"jobs are listed as strangers: {strangers}")
    for job in jobs:
        queue.gq("cancel", job)
        expect(queue.wait(job) == 124, f"a cancelled job ended as {queue.show(job)['job']['state']}")
    return f"two jobs on one card at once: {used}"


def out_of_memory(queue: Queue, card: CardReading) -> str:
    job = queue.submit("--vram", "1G", "--gpu", str(card.index), "--restart", "never", program="oom.py")
    expect(queue.wait(job) == 1, f"exit status of the job: {queue.show(job)['job']['exit_code']}")
    expect("out of memory" in queue.log(job), f"the log does not tell of it: {queue.log(job)}")
    seen = queue.show(job)
    told = f"{seen['job']['reason']} {' '.join(attempt['outcome'] for attempt in seen['attempts'])}"
    expect("memory" in told.lower(), f"gq show does not tell of it: {told}")
    return f"out of memory, diagnosed: {seen['job']['reason'].splitlines()[0]}"


def kill_and_resume(queue: Queue, card: CardReading) -> str:
    saves = queue.directory / "checkpoints"
    options = ("--vram", "2G", "--gpu", str(card.index), "--checkpoint-dir", str(saves))
    job = queue.submit(*options, program="train.py", arguments=(saves, 60, 10))
    log = queue.until_log(job, "checkpoint-20")
    match = re.search(r"pid (\d+) trains with (.*)", log)
    expect(match, f"the training did not give its pid: {log}")
    assert match is not None
    os.kill(int(match[1]), signal.SIGKILL)
    queue.until_log(job, "resumed at step")
    expect(queue.wait(job) == 0, f"the second attempt failed: {queue.log(job)}")
    resumed = re.search(r"resumed at step (\d+)", queue.log(job))
    expect(resumed and int(resumed[1]) >= 20, f"it did not go on where it was: {queue.log(job)}")
    assert resumed is not None
    return f"a training with {match[2]}, killed by SIGKILL, went on at step {resumed[1]} and ended"


def _first_json(log: str) -> Any:
    return json.loads(next(line for line in log.splitlines() if line.startswith("{")))


def _normal(pci_bus_id: str) -> str:
    """CUDA writes a domain of four digits, NVML of eight."""
    domain, rest = pci_bus_id.split(":", 1)
    return f"{int(domain, 16):08X}:{rest.upper()}"


ON_EVERY_CARD = (readings, context, pinning)
ON_ONE_CARD = (no_card, packing, out_of_memory, kill_and_resume)


def main(wanted: list[str]) -> int:
    nvml = NvmlCards()
    reading = nvml.read()
    nvml.close()
    if reading.fault or not reading.cards:
        print(f"no NVIDIA GPU here, nothing checked: {reading.fault or 'the driver lists no card'}")
        return 0
    cards = [card for card in reading.cards if not wanted or str(card.index) in wanted]
    free = [card for card in cards if card.total_mib - card.reserved_mib - card.used_mib >= MARGIN_MIB]
    if not free:
        print(f"no card with {MARGIN_MIB} MiB free among {len(cards)}: cannot check")
        return 1
    begin = time.monotonic()
    checks = [(check, card) for card in free for check in ON_EVERY_CARD]
    checks += [(check, free[0]) for check in ON_ONE_CARD]
    try:
        with _queue() as queue:
            failed = sum(not _run(check, queue, card) for check, card in checks)
    except CheckFailed as failure:
        print(f"FAIL  {failure}")
        return 1
    print(f"{len(checks) - failed} of {len(checks)} checks passed in {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


@contextmanager
def _queue() -> Iterator[Queue]:
    directory = Path(tempfile.mkdtemp(prefix="gpuqueue-real-gpu-"))
    try:
        queue = Queue(directory)
        try:
            yield queue
        finally:
            queue.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(check: Callable[[Queue, CardReading], str], queue: Queue, card: CardReading) -> bool:
    name = f"card {card.index} {check.__name__.replace('_', ' ')}"
    try:
        print(f"ok    {name}: {check(queue, card)}", flush=True)
        return True
    except CheckFailed as failure:
        print(f"FAIL  {name}: {failure}", flush=True)
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
