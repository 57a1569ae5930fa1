"""The contract of engine.ports.Backend, run on every kind of containment that this machine offers."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import ProbeState
from gpuqueue.engine.ports import Backend
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import TensorParts, TorchPeak
from gpuqueue.wire.procfs import lives
from gpuqueue.wire.rundir import CLAIM, REPORT, SPEC, USER_DIR
from tests.shim.harness import (
    a_spec,
    checkpoint,
    ended,
    eventually,
    log,
    log_has,
    order,
    run,
    run_dir,
    running,
    stop_everything,
)


def offered(kind: str, place: Path) -> bool:
    try:
        LocalBackend(place, kind)
    except GpuqueueError:
        return False
    return True


with tempfile.TemporaryDirectory() as _place:
    OFFERED = {kind: offered(kind, Path(_place)) for kind in ("session", "cgroup", "systemd")}


@pytest.fixture(params=[kind for kind, there in OFFERED.items() if there])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend(tmp_path / "state", request.param)
    yield backend
    stop_everything(backend)


@pytest.mark.parametrize("kind", OFFERED)
def test_every_kind_of_containment_is_tried(kind: str) -> None:
    if not OFFERED[kind]:
        pytest.skip(f"this machine, or this user, cannot have {kind} containment: the suite runs without it")
    assert OFFERED[kind]


def test_satisfies_the_protocol_and_names_its_containment(backend: LocalBackend) -> None:
    port: Backend = backend
    assert port.containment in ("session", "cgroup", "systemd")


def test_an_unknown_attempt_is_absent_and_nothing_is_to_be_done_about_it(backend: LocalBackend) -> None:
    assert backend.probe(99, 1).state is ProbeState.ABSENT
    backend.stop(99, 1, order())
    backend.say(99, 1, "to nobody")
    assert backend.read_log(99, 1, 0, 10) == (b"", 0, 0)
    assert backend.uses() == {}
    backend.remove(99, 1)


def test_life_of_an_attempt(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "sh", "-c", "echo hello; while [ ! -e go ]; do sleep 0.02; done; exit 3")
    backend.start(spec)
    backend.start(spec)
    assert backend.probe(1, 1).state is ProbeState.ALIVE
    running(backend, spec)
    log_has(backend, spec, "hello")
    assert backend.read_log(1, 1, 0, 5) == (b"hello", 0, 6)
    assert Path(backend.log_path(1, 1)).read_text() == "hello\n"
    backend.say(1, 1, "idle")
    log_has(backend, spec, "gq: idle")
    (tmp_path / "go").touch()
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.signal, probe.lost, probe.stopped, probe.old_boot) == (
        3,
        None,
        False,
        False,
        False,
    )
    assert probe.ended_unix is not None
    backend.start(spec)
    assert backend.probe(1, 1) == probe


PARTS_TEXT = (
    '{"frozen_mib": 8000, "trained_mib": 20, "gradients_mib": 0, "optimizer_mib": 500, "rest_mib": 480, "more": ""}'
)
REPORT_TEXT = '{"torch": {"peak_allocated_mib": 9000, "peak_reserved_mib": 10000, "context_mib": 400}}'


def test_what_a_helper_in_the_job_reports_of_torch_is_read(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "true")
    run(backend, spec)
    assert backend.torch_peak(1, 1) is None
    report = run_dir(backend, spec) / USER_DIR / REPORT
    report.write_text(REPORT_TEXT)
    assert backend.torch_peak(1, 1) == TorchPeak(allocated_mib=9000, reserved_mib=10000, context_mib=400)
    report.write_text(REPORT_TEXT.replace(', "context_mib": 400', ""))
    assert backend.torch_peak(1, 1) == TorchPeak(allocated_mib=9000, reserved_mib=10000)
    report.write_text(REPORT_TEXT.replace("400", f'400, "parts": {PARTS_TEXT}'))
    parts = TensorParts(frozen_mib=8000, trained_mib=20, gradients_mib=0, optimizer_mib=500, rest_mib=480)
    assert backend.torch_peak(1, 1) == TorchPeak(allocated_mib=9000, reserved_mib=10000, context_mib=400, parts=parts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{}",
        '{"torch": []}',
        '{"torch": {"peak_allocated_mib": 1}}',
        REPORT_TEXT.replace("9000", "-1"),
        REPORT_TEXT.replace("9000", "1e3"),
        REPORT_TEXT.replace("9000", "true"),
        REPORT_TEXT.replace("9000", '"9000"'),
        REPORT_TEXT.replace("9000", "9" * 4000),
        REPORT_TEXT.replace("400", "99999999999"),
        REPORT_TEXT + " " * 20_000,
        REPORT_TEXT.replace("400", '400, "parts": []'),
        REPORT_TEXT.replace("400", '400, "parts": {"frozen_mib": 1}'),
        REPORT_TEXT.replace("400", f'400, "parts": {PARTS_TEXT.replace("500", "-500")}'),
        "[" * 10_000,
        "\udcff",
    ],
    ids=range(17),
)
def test_a_report_that_cannot_be_believed_is_no_report(tmp_path: Path, text: str) -> None:
    user = tmp_path / "state" / "runs" / "1.1" / USER_DIR
    user.mkdir(parents=True)
    (user / REPORT).write_text(text, errors="surrogateescape")
    assert LocalBackend(tmp_path / "state", "session").torch_peak(1, 1) is None


def test_a_report_that_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    user = tmp_path / "state" / "runs" / "1.1" / USER_DIR
    user.mkdir(parents=True)
    backend = LocalBackend(tmp_path / "state", "session")
    (tmp_path / "elsewhere").write_text(REPORT_TEXT)
    (user / REPORT).symlink_to(tmp_path / "elsewhere")
    assert backend.torch_peak(1, 1) is None
    (user / REPORT).unlink()
    os.mkfifo(user / REPORT)
    assert backend.torch_peak(1, 1) is None


def test_a_new_daemon_finds_all_that_the_old_one_knew(backend: LocalBackend, tmp_path: Path) -> None:
    spec, done = a_spec(tmp_path, "sleep", "60"), a_spec(tmp_path, "sh", "-c", "exit 4", job_id=2)
    backend.start(spec)
    running(backend, spec)
    run(backend, done)
    other = LocalBackend(tmp_path / "state", backend.containment)
    assert other.probe(1, 1).state is ProbeState.ALIVE
    assert other.probe(2, 1).exit_status == 4
    assert other.uses().keys() == {(1, 1)}
    other.stop(1, 1, order(grace_s=0))
    assert ended(backend, spec).stopped


def test_who_ran_and_whom_the_kernel_killed_is_known_after_the_end(backend: LocalBackend, tmp_path: Path) -> None:
    """The count is absent, and not 0, where there is no memory controller."""
    spec = a_spec(tmp_path, "sh", "-c", "echo $$; kill -KILL $$")
    probe = run(backend, spec)
    assert probe.main_pid == int(log(backend, spec))
    assert probe.oom_kills == (0 if backend.limits_memory else None)


def test_who_outgrows_its_host_memory_is_counted(backend: LocalBackend, tmp_path: Path) -> None:
    if not backend.limits_memory:
        pytest.skip("this machine offers no memory controller")
    hungry = "held = []\nwhile True: held.append(bytearray(1 << 24))"
    probe = run(backend, a_spec(tmp_path, sys.executable, "-c", hungry, mem_mib=256))
    assert probe.signal == 9
    assert probe.oom_kills


def test_who_loses_a_process_to_its_host_memory_limit_goes_as_a_whole(backend: LocalBackend, tmp_path: Path) -> None:
    """A trainer that waits for a worker that the kernel killed would wait for ever, and hold its card."""
    if not backend.limits_memory:
        pytest.skip("this machine offers no memory controller")
    worker = f"{sys.executable} -c 'held = []\nwhile True: held.append(bytearray(1 << 24))'"
    probe = run(backend, a_spec(tmp_path, "bash", "-c", f"{worker} & wait; sleep 600", mem_mib=256))
    assert probe.signal == 9
    assert (probe.oom_kills or 0) >= 2


def test_a_job_reads_its_limits_in_its_own_cgroup(backend: LocalBackend, tmp_path: Path) -> None:
    """Runtimes size themselves by them."""
    if not backend.limits_memory:
        pytest.skip("this machine offers no memory controller")
    where = "cd /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup); cat memory.max cpu.max"
    spec = a_spec(tmp_path, "sh", "-c", where, mem_mib=256, cpus=2)
    run(backend, spec)
    assert log(backend, spec).split() == [str(256 << 20), "200000", "100000"]


def test_attempts_of_one_job_are_apart(backend: LocalBackend, tmp_path: Path) -> None:
    first, second = (a_spec(tmp_path, "sh", "-c", f"exit {n}", attempt=n) for n in (1, 2))
    run(backend, first)
    run(backend, second)
    assert [backend.probe(1, n).exit_status for n in (1, 2)] == [1, 2]


def test_stop(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "sh", "-c", "trap '' TERM; sleep 100 & echo ready; wait; sleep 100")
    backend.start(spec)
    log_has(backend, spec, "ready")
    backend.stop(1, 1, order(grace_s=1, sentence="cancelled by anna"))
    backend.stop(1, 1, order(grace_s=1, sentence="cancelled by anna"))
    probe = ended(backend, spec)
    assert (probe.stopped, probe.killed, probe.leftover_pids) == (True, True, ())
    assert log(backend, spec).count("gq: cancelled by anna") == 1
    backend.stop(1, 1, order())


def test_a_job_whose_shim_dies_is_followed_to_its_end(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "sh", "-c", "echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 5")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "ready")
    os.kill(alive.shim.pid, 9)
    eventually(lambda: not lives(alive.shim))
    eventually(lambda: backend.probe(1, 1).monitored)
    assert lives(alive.job)
    backend.say(1, 1, "still heard")
    log_has(backend, spec, "gq: still heard")
    (tmp_path / "go").touch()
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.lost) in ((5, False), (None, True))
    assert probe.exit_status == 5 or backend.containment == "systemd"  # where init, not the daemon, inherits the job


def test_uses_counts_processor_files_and_network_of_children_too(backend: LocalBackend, tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    mib = 1024 * 1024

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"x" * 8 * mib)
            connection.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    code = (
        "import os, socket, time\n"
        "if not os.fork():\n"
        "    end = time.process_time() + 0.5\n"
        "    while time.process_time() < end: pass\n"
        "    open('data', 'wb').write(b'x' * 4194304)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('child done', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        f"s = socket.create_connection(('127.0.0.1', {port})); n = 0\n"
        f"while n < {8 * mib}: n += len(s.recv(65536))\n"
        "print('downloaded', flush=True); time.sleep(60)\n"
    )
    spec = a_spec(tmp_path, sys.executable, "-I", "-S", "-c", code)
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "child done")
    before = eventually(lambda: use if (use := backend.uses()[1, 1]).io_bytes >= 4 * mib else None)
    assert before.cpu_ms >= 450
    assert alive.job.pid in before.pids
    assert alive.shim.pid not in before.pids
    (tmp_path / "go").touch()
    log_has(backend, spec, "downloaded")
    after = backend.uses()[1, 1]
    assert after.io_bytes - before.io_bytes >= 8 * mib
    assert after.cpu_ms >= before.cpu_ms
    backend.stop(1, 1, order(grace_s=0))
    ended(backend, spec)
    server.join()
    listener.close()


def test_uses_never_falls_when_a_worker_ends(backend: LocalBackend, tmp_path: Path) -> None:
    burn = "end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"  # nobody waits: what the child used is in no parent's sum
        "if not os.fork():\n"
        f"    {burn.replace(chr(10), chr(10) + '    ')}print('worked', flush=True)\n"
        "    while not os.path.exists('leave'): time.sleep(0.02)\n"
        "    os._exit(0)\n"
        "while not os.path.exists('leave'): time.sleep(0.02)\n"
        "time.sleep(0.3); print('alone', flush=True)\n"
        "time.sleep(60)\n"
    )
    spec = a_spec(tmp_path, sys.executable, "-I", "-S", "-c", code)
    backend.start(spec)
    log_has(backend, spec, "worked")
    both = backend.uses()[1, 1]
    assert len(both.pids) == 2
    (tmp_path / "leave").touch()
    log_has(backend, spec, "alone")
    alone = backend.uses()[1, 1]
    assert len(alone.pids) == 1
    assert alone.cpu_ms >= both.cpu_ms
    assert alone.io_bytes >= both.io_bytes


def test_limits_are_enforced_or_said_not_to_be(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))", cpus=1, mem_mib=512)
    run(backend, spec)
    text = log(backend, spec)
    if "is not enforced" in text:
        assert text == "gq: --mem 512M is not enforced: this machine offers no memory controller\n1\n"


def test_a_job_may_read_the_limits_of_its_own_cgroup(backend: LocalBackend, tmp_path: Path) -> None:
    """It may belong to anybody, while shim and daemon make their files for themselves alone."""
    if backend.containment == "session":
        pytest.skip("there is no cgroup in this containment")
    spec = a_spec(tmp_path, "sleep", "100")
    backend.start(spec)
    running(backend, spec)
    cgroup = backend._launcher.contained(spec).cgroup
    assert cgroup is not None
    assert stat.S_IMODE(Path(cgroup).stat().st_mode) == 0o755
    backend.stop(1, 1, order(grace_s=0))
    ended(backend, spec)


def test_the_unit_of_an_attempt_says_whose_it_is(backend: LocalBackend, tmp_path: Path) -> None:
    if backend.containment != "systemd":
        pytest.skip("only systemd containment has units")
    spec = a_spec(tmp_path, "sleep", "100")
    backend.start(spec)
    running(backend, spec)
    listed = subprocess.run(["systemctl", "list-units", "gq-1-1-*", "--no-legend"], capture_output=True, text=True)
    assert f"gpuqueue job 1, attempt 1, of {spec.user}" in listed.stdout
    backend.stop(1, 1, order(grace_s=0))
    ended(backend, spec)


def test_wakes_the_loop_when_an_attempt_comes_alive_saves_and_ends(backend: LocalBackend, tmp_path: Path) -> None:
    async def watch() -> None:
        woken = asyncio.Event()
        backend.set_waker(woken.set)
        go = tmp_path / "go"
        spec = a_spec(
            tmp_path,
            "sh",
            "-c",
            f"while [ ! -e {go} ]; do sleep 0.02; done",
            checkpoint_dir=str(tmp_path / "ck"),
            checkpoint_since=0.0,
        )

        async def news() -> None:
            await asyncio.wait_for(woken.wait(), 20)
            woken.clear()

        backend.start(spec)
        while backend.uses() == {}:
            await news()
        checkpoint(tmp_path / "ck", 5)
        while backend.probe(1, 1).checkpoint_step != 5:
            backend.say(1, 1, "look")
            await news()
        go.touch()
        while backend.probe(1, 1).state is not ProbeState.EXITED:
            await news()
        spec = a_spec(tmp_path, "sleep", "60", job_id=2)
        backend.start(spec)
        while backend.uses() == {}:
            await news()
        assert backend.probe(2, 1).monitored
        os.kill(running(backend, spec).shim.pid, 9)  # nobody says a word: its end alone wakes
        while backend.probe(2, 1).monitored:
            await news()
        backend.close()

    asyncio.run(watch())


def test_remove_deletes_only_what_has_ended(backend: LocalBackend, tmp_path: Path) -> None:
    spec = a_spec(tmp_path, "sh", "-c", "echo ready; sleep 60")
    backend.start(spec)
    log_has(backend, spec, "ready")
    with pytest.raises(GpuqueueError) as refused:
        backend.remove(1, 1)
    assert refused.value.code is ErrorCode.CONFLICT
    backend.stop(1, 1, order(grace_s=0))
    ended(backend, spec)
    make_deep(run_dir(backend, spec) / "user", 1100)  # deeper than Python recurses
    backend.remove(1, 1)
    assert not run_dir(backend, spec).exists()
    assert backend.probe(1, 1).state is ProbeState.ABSENT


def make_deep(start: Path, depth: int) -> None:
    directory = os.open(start, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=directory)
        below = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)


@pytest.mark.parametrize("record", [SPEC, CLAIM])
def test_what_cannot_be_read_is_unknown_and_stays(backend: LocalBackend, tmp_path: Path, record: str) -> None:
    spec = a_spec(tmp_path, "true")
    directory = run_dir(backend, spec)
    directory.mkdir()
    (directory / SPEC).write_text("half a rec")
    (directory / record).write_text("half a rec")
    if record == SPEC:
        (directory / CLAIM).write_text('{"shim": null, "protocol": 99}')
    probe = backend.probe(1, 1)
    assert probe.state is ProbeState.UNKNOWN
    assert str(directory) in probe.why
    with pytest.raises(GpuqueueError):
        backend.remove(1, 1)
    for file in directory.iterdir():
        file.unlink()


def test_a_containment_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GpuqueueError) as refused:
        LocalBackend(tmp_path / "b", "vault")
    assert "'vault'" in refused.value.message
    assert "session" in refused.value.hint
