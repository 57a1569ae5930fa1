"""Who a pid is, shown on real processes."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from gpuqueue.gpu.processes import identify


def test_a_process_is_named_by_owner_command_and_start() -> None:
    found = identify(os.getpid())
    assert found is not None
    assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
    assert found.user == pwd.getpwuid(os.geteuid()).pw_name
    assert found.start_ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert not found.display_server


def test_a_pid_that_is_gone_is_nobody() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert identify(process.pid) is None


def test_a_zombie_still_has_an_owner() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = identify(process.pid)
    process.wait()
    assert found is not None
    assert found.uid == os.geteuid()
    assert found.command == "true"


@pytest.fixture
def sleeper(request: pytest.FixtureRequest) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "print(flush=True); input()", *request.param]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    request.addfinalizer(lambda: process.communicate("\n"))
    assert process.stdout is not None
    process.stdout.readline()  # from here on its command line is its own
    return process


@pytest.mark.parametrize("sleeper", [["x" * 500]], indirect=True)
def test_a_long_command_is_shortened_and_its_path_left_out(sleeper: subprocess.Popen[str]) -> None:
    found = identify(sleeper.pid)
    assert found is not None
    assert len(found.command) == 80
    assert found.command.startswith(Path(sys.executable).name)
    assert found.command.endswith("x…")


@pytest.mark.parametrize("sleeper", [["\x1b[2J\nowned"]], indirect=True)
def test_a_command_cannot_act_on_the_terminal_of_whoever_reads_it(sleeper: subprocess.Popen[str]) -> None:
    found = identify(sleeper.pid)
    assert found is not None
    assert found.command.isprintable()
    assert "?[2J?owned" in found.command


def test_a_display_server_is_known_by_its_name(tmp_path: Path) -> None:
    display_server = tmp_path / "Xorg"
    display_server.symlink_to("/bin/sleep")
    process = subprocess.Popen([display_server, "60"])
    try:
        found = identify(process.pid)
        assert found is not None
        assert found.display_server
    finally:
        process.kill()
        process.wait()
