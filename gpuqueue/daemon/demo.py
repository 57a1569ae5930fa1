"""`gq demo`: five stories on a simulated 32 GB card, told by the real daemon and the real `gq`.

Everything is the shipped default policy but time: windows and pauses are seconds, so that it fits a coffee break.
It ends with what was seen, and with status 0 only if all of it was.
"""

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CARD = "32607M"  # what a "32 GB" card reads
DEADLINE_S = 85
GQ = (sys.executable, "-m", "gq")
SIMJOB = (sys.executable, "-m", "gpuqueue.simjob")
CONFIG = """\
[daemon]
sample = "1s"
shared_logins = ["{login}"]

[idle]
train_window = "16s"

[restart]
backoff_base = "2s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    title: str
    account: str
    options: tuple[str, ...]
    work: tuple[str, ...]
    shown: Callable[[dict[str, Any], str], str | None]  # (show --json, log) -> what was seen, or None


def waited_and_resumed(shown: dict[str, Any], log: str) -> str | None:
    job = shown["job"]
    if job["state"] != "succeeded" or job["restarts"] != 1 or not job["resumed_from"]:
        return None
    return f"crashed once, resumed from {Path(job['resumed_from']).name}, finished"


def finished(shown: dict[str, Any], log: str) -> str | None:
    return "ran in the held-back part beside the others" if shown["job"]["state"] == "succeeded" else None


def stopped_idle(shown: dict[str, Any], log: str) -> str | None:
    job = shown["job"]
    warnings = sum("idle" in line for line in log.splitlines() if line.startswith("gq:") and "stopping" not in line)
    if job["state"] != "stopped" or job["reason_code"] != "idle" or warnings < 2:
        return None
    return f"stopped after {warnings} warnings: {job['reason']}"


def stopped_crash_loop(shown: dict[str, Any], log: str) -> str | None:
    job = shown["job"]
    if job["state"] != "stopped" or job["reason_code"] != "crash_loop":
        return None
    return f"stopped: {job['reason']}"


STORIES = (
    Story(
        title="an idle holder is warned twice, then stopped",
        account="cleo",
        options=("--vram", "12G", "--name", "notebook", "--grace", "2s"),
        work=("--vram", "12G", "--gpu-util", "0", "--seconds", "600"),
        shown=stopped_idle,
    ),
    Story(
        title="a 22 GiB training waits, crashes, resumes from its checkpoint",
        account="ada",
        options=("--vram", "22G", "--name", "lora-14b", "--checkpoint-dir", "checkpoints"),
        work=(
            *("--vram", "22G", "--steps", "30", "--step-seconds", "0.4", "--save-every", "5", "--crash-at-step", "17"),
            *("--crash-attempts", "1"),
            *("--checkpoint-dir", "checkpoints", "--layout", "hf"),
        ),
        shown=waited_and_resumed,
    ),
    Story(
        title="a light job runs in the held-back part",
        account="ben",
        options=("--vram", "6G", "--light", "--name", "inference"),
        work=("--vram", "6G", "--seconds", "12"),
        shown=finished,
    ),
    Story(
        title="a crash loop is stopped, with growing pauses",
        account="ben",
        options=("--vram", "1G", "--light", "--name", "broken"),
        work=("--vram", "1G", "--steps", "5", "--crash-at-step", "1", "--exit-code", "3"),
        shown=stopped_crash_loop,
    ),
)


def main() -> int:
    """0 if every story was seen to its end within the time, else 1."""
    directory = Path(tempfile.mkdtemp(prefix="gq-demo-"))
    environment = demo_environment(directory)
    daemon = start_daemon(directory, environment)
    try:
        return play(directory, environment, daemon)
    except KeyboardInterrupt:
        print("\ndemo interrupted")
        return 130
    finally:
        end(environment, daemon)
        shutil.rmtree(directory, ignore_errors=True)


def demo_environment(directory: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GQ_", "CUDA_"))}
    return environment | {"GQ_SOCKET": str(directory / "s"), "COLUMNS": str(shutil.get_terminal_size().columns)}


def start_daemon(directory: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    config = directory / "config.toml"
    config.write_text(CONFIG.format(login=getpass.getuser()))
    command = [sys.executable, "-m", "gpuqueue.daemon", "serve", "--config", str(config), "--simulate", CARD]
    command += ["--state-dir", str(directory / "state"), "--socket", environment["GQ_SOCKET"]]
    log = (directory / "daemon.log").open("wb")
    daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 20
    while gq(environment, "status", "--json").returncode != 0:
        if daemon.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the demo's daemon did not start:\n{(directory / 'daemon.log').read_text()}")
        time.sleep(0.1)
    return daemon


def end(environment: dict[str, str], daemon: "subprocess.Popen[bytes]") -> None:
    gq(environment, "cancel", "--all")
    deadline = time.monotonic() + 10
    while listed(environment) and time.monotonic() < deadline:
        time.sleep(0.2)
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(timeout=20)


def gq(environment: dict[str, str], *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*GQ, *words], env=environment | more, capture_output=True, text=True, check=False)


def listed(environment: dict[str, str]) -> list[dict[str, Any]]:
    done = gq(environment, "status", "--json")
    answer: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return answer


def play(directory: Path, environment: dict[str, str], daemon: "subprocess.Popen[bytes]") -> int:
    work = directory / "work"
    work.mkdir()
    ids = [submit(environment, work, story) for story in STORIES]
    view = View(environment)
    started = time.monotonic()
    said_why = ""
    while listed(environment) and time.monotonic() - started < DEADLINE_S and daemon.poll() is None:
        why = gq(environment, "why", str(ids[1])).stdout.strip()
        if not said_why and "needs" in why:
            said_why = why
        view.show(int(time.monotonic() - started))
        time.sleep(0.5)
    view.close()
    return summary(environment, ids, said_why, int(time.monotonic() - started))


def submit(environment: dict[str, str], work: Path, story: Story) -> int:
    command = [*GQ, "submit", "-q", *story.options, "--", *SIMJOB, *story.work]
    account = {"GQ_ACCOUNT": story.account}
    done = subprocess.run(command, env=environment | account, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"gq submit refused {story.title}:\n{done.stderr}")
    return int(done.stdout)


class View:
    """`gq status` over and over on a terminal; elsewhere the events, a line each, as they happen."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.terminal = sys.stdout.isatty()
        self.seen = 0
        self.elapsed_s = 0
        print("gpuqueue demo: one SIMULATED 32 GB card, the default policy with windows of seconds\n")

    def show(self, elapsed_s: int) -> None:
        self.elapsed_s = elapsed_s
        events = self._events()
        if not self.terminal:
            for event in events:
                print(f"{elapsed_s:3d}s  {event['text']}", flush=True)
            return
        screen = gq(self.environment, "status", "--all", FORCE_COLOR="1").stdout
        print(f"\x1b[H\x1b[2J{elapsed_s:3d}s  gpuqueue demo, simulated card: below is `gq status`\n\n{screen}")
        for event in self._recent:
            print(f"  {event['text']}"[: int(self.environment["COLUMNS"])])

    def close(self) -> None:
        if not self.terminal:
            self.show(self.elapsed_s)

    def _events(self) -> list[dict[str, Any]]:
        done = gq(self.environment, "events", "--json")
        every: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        new = [event for event in every if event["id"] > self.seen]
        self.seen = max([self.seen, *(event["id"] for event in new)])
        self._recent = every[-6:]
        return new


def summary(environment: dict[str, str], ids: list[int], said_why: str, elapsed_s: int) -> int:
    print("\nWhat was seen:")
    seen_all = True
    for story, job_id in zip(STORIES, ids, strict=True):
        shown = json.loads(gq(environment, "show", str(job_id), "--json").stdout)
        seen = story.shown(shown, gq(environment, "logs", str(job_id)).stdout)
        seen_all &= seen is not None
        print(f"  {'ok ' if seen else 'NOT SEEN'} job {job_id} ({story.account}): {story.title}")
        print(f"      {seen or shown['job']['state'] + ': ' + shown['job']['reason']}")
    seen_all &= bool(said_why)
    print(f"  {'ok ' if said_why else 'NOT SEEN'} a waiting job says why, in one line")
    print(f"      {said_why}")
    print(f"\n{elapsed_s} s. " + ("All five happened." if seen_all else "Not everything happened: please report this."))
    if seen_all:
        print("Next: gpuqueued serve --simulate 32607M, then gq submit --vram 22G train.sh; or docs/install.md.")
    return 0 if seen_all else 1


if __name__ == "__main__":
    sys.exit(main())
