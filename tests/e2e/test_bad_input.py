"""Whatever is wrong in what one types, configures or connects to: one clear line that names it, a way out, the
right exit status, no traceback, and nothing lost."""

import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from gq.verbs import VERBS
from tests.e2e.accounts import accounts
from tests.e2e.node import Node, base_env

pytestmark = pytest.mark.e2e

REFUSED, USAGE, NO_DAEMON, TROUBLE = 1, 2, 3, 125
TRUE = ("--", "true")


class Case(NamedTuple):
    """A command line, its exit status, and what its message must name."""

    words: tuple[str, ...]
    status: int
    named: str


def usage(words: str, named: str, *more: str) -> Case:
    return Case((*words.split(), *more), USAGE, named)


def refused(words: str, named: str, *more: str) -> Case:
    return Case((*words.split(), *more), REFUSED, named)


# {job} is a job that waits, {ended} one that ended; the files are made by `work`.
CASES: dict[str, list[Case]] = {
    "": [usage("statsu", "statsu"), usage("--frobnicate", "--frobnicate"), usage("-x", "-x"), usage("12", "12")],
    "submit": [
        usage("submit", "nothing to run"),
        usage("submit --vram 1G", "nothing to run"),
        usage("submit --vram 1G --", "nothing to run"),
        usage("submit", "--vram", *TRUE),
        usage("submit --vram 22", "'22'", *TRUE),
        usage("submit --vram 22X", "'22X'", *TRUE),
        usage("submit --vram -1G", "'-1G'", *TRUE),
        usage("submit --vram nan", "'nan'", *TRUE),
        usage("submit --vram 99999999T", "'99999999T'", *TRUE),
        usage("submit --vram 0M", "'0M'", *TRUE),
        usage("submit --vram", "--vram"),
        usage("submit --vrma 1G", "--vrma", *TRUE),
        usage("submit --vram 1G --class heavy", "heavy", *TRUE),
        usage("submit --vram 1G --light --class train", "--class", *TRUE),
        usage("submit --vram 1G --gpus 0", "0", *TRUE),
        usage("submit --vram 1G --gpus two", "two", *TRUE),
        usage("submit --vram 1G --gpu x", "'x'", *TRUE),
        usage("submit --vram 1G --gpu 0,,1", "0,,1", *TRUE),
        usage("submit --vram 0 --gpus 1", "--gpus", *TRUE),
        usage("submit --vram 1G --time soon", "'soon'", *TRUE),
        usage("submit --vram 1G --time 0", "'0'", *TRUE),
        usage("submit --vram 1G --time 1:30", "'1:30'", *TRUE),
        usage("submit --vram 1G --time 9999d", "'9999d'", *TRUE),
        usage("submit --vram 1G --grace -5s", "'-5s'", *TRUE),
        usage("submit --vram 1G --signal SIGNONE", "SIGNONE", *TRUE),
        usage("submit --vram 1G --mem 5", "'5'", *TRUE),
        usage("submit --vram 1G --cpus 0", "0", *TRUE),
        usage("submit --vram 1G --restart sometimes", "sometimes", *TRUE),
        usage("submit --vram 1G --resume-arg --from", "--from", *TRUE),
        usage("submit --vram 1G --resume latest", "--resume latest", *TRUE),
        usage("submit --vram 1G --resume missing/checkpoint-1", "missing/checkpoint-1", *TRUE),
        usage("submit --vram 1G --account a/b", "'a/b'", *TRUE),
        usage("submit --vram 1G --as nobody-of-that-name", "nobody-of-that-name", *TRUE),
        usage("submit --vram 1G --attach --json", "--json", *TRUE),
        usage("submit --vram 1G --name", "--name", "a" * 201, *TRUE),
        usage("submit --vram 1G --gpu-type", "--gpu-type", "a" * 201, *TRUE),
        usage("submit --vram 1G missing.sh", "missing.sh"),
        usage("submit --vram 1G .", "."),
        usage("submit --vram 1G empty.sh", "empty.sh"),
        usage("submit --vram 1G binary", "binary"),
        usage("submit --vram 1G latin1.sh", "latin1.sh"),
        usage("submit --vram 1G windows.sh", "windows.sh"),
        usage("submit --vram 1G large.sh", "large.sh"),
        usage("submit header.sh", "header.sh, line 2"),
        usage("submit quotes.sh", "quotes.sh, line 2"),
        usage("submit unit.sh", "'22'"),
        usage("submit --vram 1G -- no-such-program", "no-such-program"),
        usage("submit --vram 1G -- ./empty.sh", "./empty.sh"),
        usage("submit --vram 1G -- ./gone", "./gone"),
        refused("submit --vram 33G", "33.0 GiB", *TRUE),
        refused("submit --vram 1G --gpus 2", "2", *TRUE),
        refused("submit --vram 1G --gpu 7", "7", *TRUE),
        refused("submit --vram 1G --gpu-type H100", "H100", *TRUE),
        refused("submit --vram 1G --exclusive", "exclusive", *TRUE),
        refused("submit --vram 1G --time 300d", "300d", *TRUE),
    ],
    "status": [
        usage("status 12", "12"),
        usage("status --frobnicate", "--frobnicate"),
        usage("status --limit 0 --all", "0"),
        usage("status --limit 5k --all", "5k"),
        usage("status --user", "--user"),
    ],
    "why": [usage("why", "JOB"), usage("why x", "'x'"), usage("why 0", "'0'"), refused("why 999", "999")],
    "show": [
        usage("show", "JOB"),
        usage("show 1.5", "'1.5'"),
        usage("show", "'-1'", "--", "-1"),
        usage("show", "99999999999999999999", "99999999999999999999"),
        usage("show {job} 2", "2"),
        refused("show 999999999999999999", "999999999999999999"),
    ],
    "logs": [
        usage("logs", "JOB"),
        usage("logs -f {ended} --attempt 1", "--attempt"),
        usage("logs {ended} -n -1", "-1"),
        usage("logs {ended} --attempt 0", "0"),
        refused("logs 999", "999"),
        refused("logs {ended} --attempt 7", "7"),
    ],
    "wait": [
        usage("wait", "JOBS"),
        usage("wait twelve", "'twelve'"),
        Case(("wait", "{ended}", "999"), TROUBLE, "999"),
    ],
    "cancel": [
        usage("cancel", "which jobs"),
        usage("cancel --all {ended}", "--all"),
        usage("cancel all", "'all'"),
        refused("cancel 999", "999"),
        refused("cancel {ended}", "{ended}"),
    ],
    "requeue": [usage("requeue", "JOBS"), usage("requeue x", "'x'"), refused("requeue {job}", "{job}")],
    "keep": [
        usage("keep {job}", "TIME"),
        usage("keep {job} long", "'long'"),
        usage("keep {job} 0s", "'0s'"),
        usage("keep {job} 999999d", "'999999d'"),
        refused("keep {ended} 1h", "{ended}"),
        refused("keep 999 1h", "999"),
    ],
    "gpus": [usage("gpus 0", "0"), usage("gpus --jsno", "--jsno")],
    "quota": [
        usage("quota frobnicate", "frobnicate"),
        usage("quota set", "ACCOUNT"),
        usage("quota set ann", "nothing to set"),
        usage("quota set ann --train 20", "'20'"),
        usage("quota set ann --train 20G --light much", "'much'"),
        usage("quota set ann --heavy 20G", "--heavy"),
        usage("quota set", "''", "", "--train", "1G"),
        usage("quota set a/b --train 1G", "'a/b'"),
        usage("quota unset", "ACCOUNT"),
        refused("quota unset nobody-of-that-name", "nobody-of-that-name"),
    ],
    "events": [
        usage("events x", "x"),
        usage("events --job x", "'x'"),
        usage("events --after -5", "-5"),
        usage("events --limit 1001", "1001"),
    ],
    "history": [
        usage("history 12", "12"),
        usage("history --limit 0", "0"),
        usage("history --csv --json", "--csv"),
    ],
    "probe": [
        usage("probe", "nothing to probe"),
        usage("probe --steps 0", "0", *TRUE),
        usage("probe --minutes soon", "'soon'", *TRUE),
        usage("probe --minutes nan", "'nan'", *TRUE),
        usage("probe --minutes inf", "inf", *TRUE),
        usage("probe --vram 22", "'22'", *TRUE),
        usage("probe missing.sh", "missing.sh"),
        usage("probe -- no-such-program", "no-such-program"),
        refused("probe --vram 33G", "33.0 GiB", *TRUE),
    ],
    "doctor": [usage("doctor now", "now")],
    "estimate": [
        usage("estimate no-such/model", "no-such/model"),
        usage("estimate", "model"),
        usage("estimate Qwen/Qwen2.5-7B --method magic", "magic"),
        usage("estimate Qwen/Qwen2.5-7B --card 32", "'32'"),
        usage("estimate Qwen/Qwen2.5-7B --batch many", "many"),
        usage("estimate Qwen/Qwen2.5-7B --batch 0", "batch"),
        usage("estimate Qwen/Qwen2.5-7B --zero 9", "9"),
        usage("estimate Qwen/Qwen2.5-7B --utilization nan", "'nan'"),
        usage("estimate Qwen/Qwen2.5-7B --weights int3", "int3"),
        usage("estimate --from missing.yaml", "missing.yaml"),
    ],
    "diagnose": [
        usage("diagnose", "FILE"),
        usage("diagnose missing.log", "missing.log"),
        usage("diagnose .", "."),
        usage("diagnose plain.py --exit-status boom", "boom"),
    ],
    "checkpoints": [
        usage("checkpoints", "DIRECTORY"),
        usage("checkpoints missing", "missing"),
        usage("checkpoints plain.py", "plain.py"),
    ],
    "demo": [usage("demo --frobnicate", "--frobnicate"), usage("demo now", "now")],
    "version": [usage("version 2", "2")],
}


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """One daemon for all of them, with one job that waits and one that ended."""
    directory = Path(tempfile.mkdtemp(prefix="gq-"))
    directory.chmod(0o755)  # for other accounts
    node = Node(directory, config='[daemon]\nsample = "1s"\n')
    try:
        node.start()
        ended = node.submit("--vram", "0", "--", "true")
        node.until_state(ended, "succeeded")
        node.submit("--vram", "20G", "--", "sleep", "1h")
        node.submit("--vram", "20G", "--", "sleep", "1h")
        yield node
    finally:
        node.close()
        shutil.rmtree(directory, ignore_errors=True)


ENDED, WAITING = 1, 3


@pytest.fixture(scope="module")
def work(node: Node) -> Path:
    """The files that the cases name."""
    (node.work / "empty.sh").touch()
    (node.work / "binary").write_bytes(b"\x7fELF\0\0")
    (node.work / "latin1.sh").write_bytes(b"#!/bin/sh\necho caf\xe9\n")
    (node.work / "windows.sh").write_bytes(b"#!/bin/sh\r\necho\r\n")
    (node.work / "plain.py").write_text("print(1)\n")
    (node.work / "large.sh").write_bytes(b"#!/bin/sh\n" + b"#" * (4 << 20))
    (node.work / "header.sh").write_text("#!/bin/sh\n#GQ --vram 1G --frobnicate\n")
    (node.work / "quotes.sh").write_text("#!/bin/sh\n#GQ --name 'open\n")
    (node.work / "unit.sh").write_text("#!/bin/sh\n#GQ --vram 22\n")
    return node.work


@pytest.mark.parametrize("verb", CASES, ids=lambda verb: verb or "gq")
def test_a_mistake_is_one_line_that_names_it_and_the_way_out(node: Node, work: Path, verb: str) -> None:
    before = node.states()
    for case in CASES[verb]:
        words = [word.format(job=WAITING, ended=ENDED) for word in case.words]
        done = node.gq(*words, check=False)
        assert_clear(done, case.status, case.named.format(job=WAITING, ended=ENDED))
    assert_nothing_lost(node, before)


def test_no_verb_is_left_out() -> None:
    assert set(VERBS) | {""} == set(CASES)


@pytest.mark.root
def test_what_belongs_to_others_is_refused_by_name(node: Node, work: Path, open_path: Path) -> None:
    before = node.states()
    with accounts(open_path, 1) as [other]:
        for words, named in (
            (("cancel", str(WAITING)), "belongs to root"),
            (("requeue", str(ENDED)), "belongs to root"),
            (("keep", str(WAITING), "1h"), "belongs to root"),
            (("logs", str(ENDED)), "belongs to root"),
            (("quota", "set", other.name, "--train", "30G"), other.name),
            (("quota", "unset", other.name), other.name),
            (("submit", "--vram", "1G", "--as", "root", *TRUE), "'root'"),
            (("submit", "--vram", "1G", "--account", "root", *TRUE), "'root'"),
        ):
            done = node.gq(*words, check=False, user=other.name, cwd=open_path, env=other.shell_environment())
            assert_clear(done, REFUSED, named)
    assert_nothing_lost(node, before)


# -- the socket ----------------------------------------------------------------------------------------------------

ASKING: list[tuple[str, ...]] = [
    (),
    ("status",),
    ("status", "--json"),
    ("submit", "--vram", "1G", *TRUE),
    ("why", "1"),
    ("show", "1"),
    ("logs", "1"),
    ("cancel", "1"),
    ("requeue", "1"),
    ("keep", "1", "1h"),
    ("gpus",),
    ("quota",),
    ("quota", "set", "ann", "--train", "1G"),
    ("events",),
    ("doctor",),
]


def test_without_a_daemon_every_verb_says_how_to_start_one(make_node: Callable[..., Node]) -> None:
    down = make_node()
    for words in ASKING:
        done = down.gq(*words, check=False)
        assert_clear(done, NO_DAEMON, str(down.socket))
        assert "gpuqueued serve" in done.stderr, done.stderr
    assert_clear(down.gq("wait", "1", check=False), TROUBLE, str(down.socket))


def test_a_socket_that_is_dead_or_none_is_named(make_node: Callable[..., Node]) -> None:
    node = make_node().start()
    node.kill()
    node.until(node.socket.is_socket, "its socket file is left over")
    for words in ASKING:
        assert_clear(node.gq(*words, check=False), NO_DAEMON, str(node.socket))
    (node.directory / "file").touch()
    for path, status in (
        (node.directory / "file", NO_DAEMON),
        (node.directory, NO_DAEMON),
        (node.directory / "file" / "s", NO_DAEMON),
        (node.directory / ("a" * 120), USAGE),
    ):
        assert_clear(node.gq("status", env={"GQ_SOCKET": str(path)}, check=False), status, str(path))


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 404 X\r\n\r\n"]
)
def test_what_is_not_gpuqueued_is_not_believed(make_node: Callable[..., Node], answer: bytes) -> None:
    node = make_node()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as server:
        server.bind(str(node.socket))
        server.listen()
        Thread(target=_answer_all, args=(server, answer), daemon=True).start()
        for words in (("status",), ("cancel", "1"), ("events",)):
            assert_clear(node.gq(*words, check=False), REFUSED, "gpuqueued")
        server.shutdown(socket.SHUT_RDWR)


def _answer_all(server: socket.socket, answer: bytes) -> None:
    with suppress(OSError):  # shut down: the test is over
        while True:
            with closing(server.accept()[0]) as connection:
                connection.recv(65536)
                connection.sendall(answer)


# -- gpuqueued -------------------------------------------------------------------------------------------------------

CONFIGS: list[tuple[str, str]] = [
    ("[quota]\ntrain = 20\n", ":2: quota.train"),
    ('[quota]\ntrain = "20"\n', ":2: quota.train"),
    ('[quota]\ntrian = "20G"\n', ":2: quota.trian"),
    ('[qouta]\ntrain = "20G"\n', ":1: qouta"),
    ('\n\nquota = "20G"\n', ":3: quota"),
    ('[idle]\ntrain_window = "soon"\n', ":2: idle.train_window"),
    ('[idle]\nmode = "maybe"\n', ":2: idle.mode"),
    ('[daemon]\nsample = "0s"\n', ":2: daemon.sample"),
    ('[daemon]\nstate_dir = "here"\n', ":2: daemon.state_dir"),
    ("[daemon\n", ":1"),
    ("[quota]\nborrowing = true\n", ":2: quota.borrowing"),
    ('[quota.users.ann]\nheavy = "1G"\n', ":2: quota.users.ann.heavy"),
    ('[limits]\ndefault_time = "9d"\nmax_time = "1d"\n', "limits."),
    ('[daemon]\nsimulate = ["0"]\n', ":2: daemon.simulate"),
    ("\xff", ":1"),
]


def gpuqueued(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gpuqueue.daemon", *words]
    return subprocess.run(command, env=base_env(), cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_a_mistake_in_the_configuration_is_one_line_with_file_and_line(open_path: Path) -> None:
    file = open_path / "c.toml"
    for text, named in CONFIGS:
        file.write_bytes(text.encode("latin-1"))
        named = f"{file}{named}" if named.startswith(":") else named
        assert_clear(gpuqueued("check-config", str(file), cwd=open_path), USAGE, named, "gpuqueued")
    for verb in ("serve", "init"):
        assert_clear(gpuqueued(verb, "--config", str(file), cwd=open_path), USAGE, named, "gpuqueued")
    assert sorted(open_path.iterdir()) == [file]


def test_a_wrong_word_to_gpuqueued_is_one_line(open_path: Path) -> None:
    state = ("--state-dir", str(open_path / "state"))
    for words, named in (
        (("sevre",), "sevre"),
        (("serve", "now"), "now"),
        (("serve", "--frobnicate"), "--frobnicate"),
        (("serve", *state, "--simulate", "32"), "'32'"),
        (("serve", *state, "--simulate", "0"), "--simulate"),
        (("serve", *state, "--simulate", "32G,,"), "''"),
        (("serve", *state, "--simulate", "32G", "--socket", f"/tmp/{'a' * 120}"), "a" * 120),
        (("serve", "--config", "missing.toml"), "missing.toml"),
        (("serve", "--config", "."), "."),
        (("check-config",), "FILE"),
        (("check-config", "missing.toml"), "missing.toml"),
        (("init", "--simulate", "32G"), "--simulate"),
    ):
        assert_clear(gpuqueued(*words, cwd=open_path), USAGE, named, "gpuqueued")


def test_a_place_that_cannot_be_served_from_is_refused_by_name(make_node: Callable[..., Node]) -> None:
    node = make_node()
    file, damaged = node.directory / "file", node.directory / "damaged"
    file.write_text("in the way")
    damaged.mkdir()
    (damaged / "gpuqueue.db").write_bytes(b"SQLite format 3\0 and then nothing that makes sense" * 100)
    simulate = ("--simulate", "32607M")
    for words, status, named in (
        (("serve", *simulate, "--state-dir", str(file)), REFUSED, str(file)),
        (("init", "--state-dir", str(file / "below")), REFUSED, str(file / "below")),
        (("serve", *simulate, "--state-dir", str(damaged)), REFUSED, str(damaged / "gpuqueue.db")),
        (("serve", *simulate, "--state-dir", str(node.state), "--socket", str(file)), USAGE, str(file)),
        (("serve", *simulate, "--state-dir", str(node.state), "--socket", str(file / "s")), REFUSED, str(file / "s")),
    ):
        assert_clear(gpuqueued(*words, cwd=node.directory), status, named, "gpuqueued")
    assert file.read_text() == "in the way"

    node.start()
    job = node.submit("--vram", "0", *TRUE)
    second = gpuqueued("serve", *simulate, "--state-dir", str(node.state), "--socket", f"{node.socket}2", cwd=node.work)
    assert_clear(second, REFUSED, str(node.state), "gpuqueued")
    third = ("--state-dir", str(node.directory / "other"), "--socket", str(node.socket))
    assert_clear(gpuqueued("serve", *simulate, *third, cwd=node.work), REFUSED, str(node.socket), "gpuqueued")
    assert node.until_state(job, "succeeded")


# -- what must be true -----------------------------------------------------------------------------------------------


def assert_nothing_lost(node: Node, states: dict[int, str]) -> None:
    """The daemon still answers with the same jobs, and its database is whole."""
    assert node.states() == states
    with closing(sqlite3.connect(f"{(node.state / 'gpuqueue.db').as_uri()}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert "Traceback" not in node.log.read_text()


def assert_clear(done: "subprocess.CompletedProcess[str]", status: int, named: str, program: str = "gq") -> None:
    """Exit status and message, and nothing on the standard output but what was asked for."""
    said = f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == status, said
    assert "Traceback" not in done.stderr, said
    lines = done.stderr.splitlines()
    assert len(lines) == 2, said  # what is wrong, and what to do
    assert lines[0].startswith(f"{program}: "), said
    assert named in lines[0], said
    assert lines[1].startswith("  "), said
