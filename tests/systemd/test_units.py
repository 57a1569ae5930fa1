"""The unit files, checked by systemd's own tools."""

import configparser
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).parents[2] / "systemd"
PLACEHOLDER = "/opt/gpuqueue/bin/gpuqueued"
UNDER_TEST = "gpuqueue-under-test.service"  # a node where it is installed may have drop-ins for gpuqueued.service
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes directories that belong to root")


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (it comes with systemd)")
    return found


def settings(unit: str, section: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(SYSTEMD / unit)
    return dict(parser[section])


def test_the_units_verify_with_the_path_filled_in(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "gpuqueued"
    if not program.exists():  # the tests run from the source tree: any program shows that the line is well formed
        program = Path(sys.executable)
    text = (SYSTEMD / "gpuqueued.service").read_text()
    assert text.count(PLACEHOLDER) == 1
    unit = tmp_path / UNDER_TEST
    unit.write_text(text.replace(PLACEHOLDER, str(program)))
    shutil.copy(SYSTEMD / "gpuqueue.slice", tmp_path)
    verified = subprocess.run(
        [tool("systemd-analyze"), "verify", str(unit), str(tmp_path / "gpuqueue.slice")],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    said = [line for line in verified.stderr.splitlines() if "gpuqueue" in line]  # other units of this machine aside
    assert said == []
    assert verified.returncode == 0, verified.stderr


def test_a_mistake_in_a_unit_would_be_seen(tmp_path: Path) -> None:
    broken = (SYSTEMD / "gpuqueued.service").read_text().replace(PLACEHOLDER, "/nowhere/gpuqueued")
    (tmp_path / UNDER_TEST).write_text(broken.replace("KillMode=process", "KillMode=perhaps"))
    verified = subprocess.run(
        [tool("systemd-analyze"), "verify", str(tmp_path / UNDER_TEST)], capture_output=True, text=True
    )
    assert "perhaps" in verified.stderr
    assert "/nowhere/gpuqueued" in verified.stderr


def test_stopping_the_service_leaves_jobs_alone() -> None:
    service = settings("gpuqueued.service", "Service")
    assert service["Type"] == "notify"
    assert service["KillMode"] == "process"
    assert service["Delegate"] == "yes"
    assert service["Restart"] == "on-failure"


def test_nothing_that_hides_cards_homes_or_other_processes_is_switched_on() -> None:
    harmful = {
        "CapabilityBoundingSet",
        "DevicePolicy",
        "DynamicUser",
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "PrivateDevices",
        "PrivateTmp",
        "ProtectClock",
        "ProtectHome",
        "ProtectKernelModules",
        "ProtectSystem",
        "RestrictNamespaces",
        "SystemCallFilter",
        "User",
    }
    assert harmful.isdisjoint(settings("gpuqueued.service", "Service"))
    text = (SYSTEMD / "gpuqueued.service").read_text()
    assert all(f"{name}=" in text for name in harmful)  # and the file says why not


def test_the_admins_group_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    subprocess.run(
        [tool("systemd-sysusers"), f"--root={tmp_path}", str(SYSTEMD / "sysusers.d/gpuqueue.conf")],
        check=True,
        capture_output=True,
    )
    groups = [line.split(":")[0] for line in (tmp_path / "etc/group").read_text().splitlines()]
    assert groups == ["gpuqueue-admin"]


@as_root
@pytest.mark.root
def test_the_directories_are_made_with_their_modes(tmp_path: Path) -> None:
    made = subprocess.run(
        [tool("systemd-tmpfiles"), "--create", f"--root={tmp_path}", str(SYSTEMD / "tmpfiles.d/gpuqueue.conf")],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("run/gpuqueue", "var/lib/gpuqueue")}
    assert modes == {"run/gpuqueue": 0o755, "var/lib/gpuqueue": 0o711}
