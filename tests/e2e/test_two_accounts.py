"""Two real Unix accounts, A and B, under root's daemon: neither gets at the other's jobs, nor around the monitor of
its own, and a home that root cannot read does not matter (A1, A2, J1, the shim's contract)."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.accounts import Account
from tests.e2e.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.root]

# The nearest that one machine has to a home on an export that squashes root: a daemon whose root may not pass over
# file modes. To it a directory of mode 0700 is as closed as that export.
ROOT_WITHOUT_PASSES = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")

FORGERY = """
log=$(readlink /proc/$$/fd/1); run=${log%/user/output.log}; runs=${run%/*}
try() { if "$@" 2>/dev/null; then echo "ALLOWED: $*"; else echo "refused: $*"; fi; }
for record in spec claim alive stop heard progress exit; do
    try sh -c "echo '{\\"exit_status\\": 0}' > $run/$record.json"
    try rm "$run/$record.json"
done
try sh -c "echo '{\\"text\\": \\"forged\\"}' >> $run/say.jsonl"
try mv "$run/user" "$run/elsewhere"
try mkdir "$runs/$GQ_JOB_ID.2"
try ls "$runs"
try cat "$run/spec.json"
try cat "$runs/$VICTIM.1/user/output.log"
try kill -KILL $PPID
try kill -STOP $PPID
try kill -KILL $DAEMON
exit 3
"""
ATTEMPTS = 23


def test_nobody_touches_or_reads_anothers_job(node: Node, people: list[Account]) -> None:
    a, b = people
    job = node.submit("--vram", "1G", "--", "sh", "-c", "echo only for B; exec sleep 3600", user=b.name)
    node.until_state(job, "running")
    node.until(lambda: "only for B" in node.logs(job, user=b.name), "B reads B's log")
    for verb, *more in (("cancel",), ("keep", "1h"), ("requeue",), ("logs",)):
        for borrowed in (a, b):
            refused = node.gq(verb, str(job), *more, user=a.name, env=borrowed.shell_environment(), check=False)
            assert refused.returncode == 1, verb
            assert f"belongs to {b.name}: you ({a.name}) may not" in refused.stderr
            assert refused.stdout == ""
    shown = node.gq("show", str(job), user=a.name).stdout
    assert b.name in shown  # the queue is everybody's
    assert str(node.state) not in shown
    assert node.job(job)["state"] == "running"
    assert node.show(job)["job"]["attempt"] == 1


def test_naming_anothers_checkpoint_directory_keeps_his_jobs_from_nothing(node: Node, people: list[Account]) -> None:
    """R2: of one user's jobs one at a time saves into a directory; of two users' jobs each is told of the other."""
    a, b = people
    asked = ("submit", "--vram", "0", "--checkpoint-dir", str(b.home / "out"), "--", "sleep", "3600")
    node.gq(*asked, user=a.name)
    node.until_state(1, "running")
    told = node.gq(*asked, user=b.name)
    node.until_state(2, "running")
    assert f"job 1 of {a.name} saves into {b.home / 'out'} too: each may resume" in " ".join(told.stdout.split())


def test_a_job_neither_forges_its_record_nor_kills_its_monitor(node: Node, people: list[Account]) -> None:
    a, b = people
    victim = node.submit("--vram", "1G", "--", "sh", "-c", "echo only for B; exec sleep 3600", user=b.name)
    node.until_state(victim, "running")
    assert node.process is not None
    env = {"VICTIM": str(victim), "DAEMON": str(node.process.pid)}
    job = node.submit("--vram", "1G", "--restart", "never", "--", "sh", "-c", FORGERY, user=a.name, env=env)
    assert node.wait(job) == 3
    log = node.logs(job, user=a.name)
    assert log.count("refused: ") == ATTEMPTS
    assert "ALLOWED" not in log
    assert "gq: forged" not in log
    assert "only for B" not in log
    assert node.job(job)["attempt"] == 1
    assert node.job(victim)["state"] == "running"


@pytest.mark.parametrize("trick", ["symbolic link", "fifo", "somebody else's file"])
def test_a_log_is_only_read_where_it_is_its_owners_own_file(node: Node, people: list[Account], trick: str) -> None:
    a, _ = people
    secret = node.directory / "secret"
    secret.write_text("for root alone\n")
    secret.chmod(0o600)
    job = node.submit("--vram", "1G", "--", "sleep", "3600", user=a.name)
    node.until_state(job, "running")
    log = node.run_directory(job) / "user" / "output.log"
    make = {
        "symbolic link": ["ln", "-s", str(secret), str(log)],
        "fifo": ["mkfifo", str(log)],
        "somebody else's file": ["mv", str(node.run_directory(job) / "user" / "other"), str(log)],
    }[trick]
    (log.parent / "other").write_text(secret.read_text())
    subprocess.run(["runuser", "-u", a.name, "--", "rm", str(log)], check=True, cwd="/")
    subprocess.run(["runuser", "-u", a.name, "--", *make], check=True, cwd="/")
    for words in (["logs"], ["logs", "-n", "5"]):
        refused = node.gq(*words, str(job), user=a.name, check=False, timeout=20)
        assert refused.returncode == 1
        assert "for root alone" not in refused.stdout + refused.stderr
        assert "is not read" in refused.stderr
    assert node.job(job)["state"] == "running"


def test_a_home_that_root_cannot_read_does_not_matter(
    make_node: Callable[..., Node], people: list[Account], open_path: Path
) -> None:
    a, _ = people
    node = make_node(
        config='[daemon]\nsample = "1s"\n[restart]\nbackoff_base = "1s"\n', under=ROOT_WITHOUT_PASSES
    ).start()
    script = a.home / "train.sh"
    script.write_text(
        "pwd; cat data; umask; touch saved\n"
        '[ -n "$GQ_RESUME_FROM" ] && echo "went on from $GQ_RESUME_FROM" && exit 0\n'
        "mkdir -p out/step-10; echo state > out/step-10/model.bin; exit 1\n"
    )
    (a.home / "data").write_text("what only A can read\n")
    for file in (script, a.home / "data"):
        os.chown(file, a.uid, a.gid)
        file.chmod(0o600)
    closed = subprocess.run([*ROOT_WITHOUT_PASSES, "cat", str(script)], capture_output=True, text=True, check=False)
    assert "Permission denied" in closed.stderr

    words = ["--vram", "1G", "--checkpoint-command", "ls -d out/step-10", "train.sh"]
    job = node.submit(*words, user=a.name, cwd=a.home, umask=0o027, env=a.shell_environment())
    assert node.wait(job) == 0, node.why(job)
    for attempt, more in ((1, []), (2, [f"went on from {a.home}/out/step-10"])):
        log = (node.run_directory(job, attempt) / "user" / "output.log").read_text().splitlines()
        said = [line for line in log if not line.startswith("gq: ")]
        assert said == [str(a.home), "what only A can read", "0027", *more]
    assert (a.home / "saved").stat().st_uid == a.uid
    assert (a.home / "saved").stat().st_mode & 0o777 == 0o640
