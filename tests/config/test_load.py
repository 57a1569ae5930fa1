"""TOML to Settings, and errors that name the file, the line, the key and the way out."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.config.keys import NOMINAL, POLICY, SETTINGS
from gpuqueue.config.load import SECTIONS, load
from gpuqueue.config.settings import Settings
from gpuqueue.core.policy import (
    IdlePolicy,
    LimitPolicy,
    Mode,
    Nominal,
    OverusePolicy,
    Placement,
    PlacePolicy,
    Policy,
    QuotaPolicy,
    RestartPolicy,
)
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

Write = Callable[[str], Path]

EVERYTHING = """
[daemon]
state_dir = "/srv/gpuqueue"
socket = "/srv/gpuqueue.sock"
socket_mode = "0660"
socket_group = "gpu"
admin_group = "wheel"
shared_logins = ["lab", "kiosk"]
hide_commands = true
simulate = ["32607M", "24G"]
containment = "session"
strangers = "report"
sample = "4s"

[quota]
held_back = "10G"
train = "20G"
light = "9.5G"
borrowing = false
half_life = "12h"
groups.vision = { train = "24G" }

[quota.users.ann]
train = "30G"
weight = 2

[quota.users."ben.o"]
light = 0

[quota.users.cat]
weight = 3

[place]
margin = "256M"
placement = "spread"
max_tenants = 4
exclusive_accounts = ["ann"]
pin = "uuid"

[idle]
mode = "report"
train_window = "20m"
light_window = "3h"
interactive_window = 1800
gpu = "2.5%"
cpu = 1
io = "512K"
stalled_warn = "10m"
stalled_stop = "4h"
exempt_accounts = ["cat"]

[overuse]
tolerance = "1G"
tolerance_percent = "10%"
tight_free = "128M"
grace = "5s"

[restart]
backoff_base = "5s"
backoff_max = "5m"
crash_limit = 3
per_day = 10
victim_limit = 0

[limits]
default_time = "12h"
max_time = "2d12h"
default_grace = "1m"
max_grace = "5m"
keep_max = "6h"
warn = "80%"

[logs]
cap = "512M"
retention = "7d"
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "gpuqueue.toml"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    return to_file


def test_without_a_file_everything_is_default() -> None:
    assert load(None) == Settings()


def test_an_empty_file_is_all_defaults(write: Write) -> None:
    assert load(write("")) == Settings()


def test_every_key_lands_in_its_field(write: Write) -> None:
    assert load(write(EVERYTHING)) == Settings(
        state_dir=Path("/srv/gpuqueue"),
        socket=Path("/srv/gpuqueue.sock"),
        socket_mode=0o660,
        socket_group="gpu",
        admin_group="wheel",
        shared_logins=frozenset({"lab", "kiosk"}),
        hide_commands=True,
        simulate_mib=(32607, 24576),
        containment="session",
        sample_s=4,
        log_cap_mib=512,
        retention_days=7,
        policy=Policy(
            quota=QuotaPolicy(
                held_back_mib=10240,
                default=Nominal(train_mib=20480, light_mib=9728),
                groups={"vision": Nominal(train_mib=24576)},
                users={"ann": Nominal(train_mib=30720), "ben.o": Nominal(light_mib=0)},
                weights={"ann": 2, "cat": 3},
                half_life_s=43200,
            ),
            place=PlacePolicy(
                margin_mib=256,
                placement=Placement.SPREAD,
                max_tenants=4,
                exclusive_accounts=frozenset({"ann"}),
                pin="uuid",
            ),
            idle=IdlePolicy(
                mode=Mode.REPORT,
                train_window_s=1200,
                light_window_s=10800,
                interactive_window_s=1800,
                gpu_permille=25,
                cpu_millicores=1000,
                io_kib_s=512,
                stalled_warn_s=600,
                stalled_stop_s=14400,
                exempt_accounts=frozenset({"cat"}),
            ),
            overuse=OverusePolicy(tolerance_mib=1024, tolerance_percent=10, tight_free_mib=128, grace_s=5),
            restart=RestartPolicy(backoff_base_s=5, backoff_max_s=300, crash_limit=3, per_day=10, victim_limit=0),
            limits=LimitPolicy(
                default_s=43200, max_s=216000, default_grace_s=60, max_grace_s=300, keep_max_s=21600, warn_percent=80
            ),
        ),
    )


def test_every_field_of_the_policy_and_the_settings_has_a_key() -> None:
    policies = {"place": PlacePolicy, "idle": IdlePolicy, "overuse": OverusePolicy}
    policies |= {"restart": RestartPolicy, "limits": LimitPolicy}
    for section, kind in policies.items():
        assert {key.field for key in POLICY[section].values()} == {field.name for field in dataclasses.fields(kind)}
    own = {key.field for keys in SETTINGS.values() for key in keys.values()}
    assert own | {"policy"} == {field.name for field in dataclasses.fields(Settings)}
    assert {key.field for key in NOMINAL.values()} == {field.name for field in dataclasses.fields(Nominal)}
    assert {*POLICY, *SETTINGS, "quota"} == set(SECTIONS)


def test_a_share_is_held_back_as_a_share(write: Write) -> None:
    quota = load(write('[quota]\nheld_back = "30%"\n')).policy.quota
    assert (quota.held_back_percent, quota.held_back_mib) == (30, None)


def test_a_home_is_filled_in(write: Write) -> None:
    assert load(write('[daemon]\nstate_dir = "~/gq"\n')).state_dir == Path.home() / "gq"


def test_the_places_are_the_systems_for_root_and_ones_own_for_others() -> None:
    settings = Settings()
    if os.geteuid() == 0:
        assert settings.state_dir == Path("/var/lib/gpuqueue")
        assert settings.socket == Path("/run/gpuqueue/gpuqueued.sock")
        assert settings.socket_mode == 0o666
    else:
        assert Path.home() in settings.state_dir.parents or "XDG_STATE_HOME" in os.environ
        assert settings.socket_mode == 0o600


WRONG: list[Any] = [
    # text, line, key, part of the problem, part of the way out
    ('[quota]\nheld_back = "20"\n', 2, "quota.held_back", "no unit", "20G"),
    ('[quota]\nheld_back = "120%"\n', 2, "quota.held_back", "more than 100%", ""),
    ("[quota]\nheld_back = 20\n", 2, "quota.held_back", "20 is not a size", '"20G"'),
    ("[quota]\n\n# borrow\nborrowing = true\n", 4, "quota.borrowing", "not in this release", "false"),
    ('[quota]\nborrowing = "yes"\n', 2, "quota.borrowing", "'yes' is not true or false", ""),
    ("[quota]\nusers = 3\n", 2, "quota.users", "not a table", "[quota.users.NAME]"),
    ('[quota.users]\nann = "20G"\n', 2, "quota.users.ann", "not a table", "[quota.users.ann]"),
    ('[quota.users.ann]\ntrian = "20G"\n', 2, "quota.users.ann.trian", "no such key", "did you mean train?"),
    ("[quota.users.ann]\nweight = 0\n", 2, "quota.users.ann.weight", "from 1 up", ""),
    ("[quota.groups.phd]\nweight = 2\n", 2, "quota.groups.phd.weight", "no such key", "light"),
    ('quota.users.ann.train = "1 G B"\n', 1, "quota.users.ann.train", "not a size", "22G"),
    ('[quotas]\ntrain = "20G"\n', 1, "quotas", "no such section", "did you mean quota?"),
    ("\n\nxyzzy = 1\n", 3, "xyzzy", "no such section", "daemon, quota"),
    ("[[place]]\n", 1, "place", "not a table", "[place]"),
    ("place = 1\n", 1, "place", "not a table", "[place]"),
    ('[place]\nplacement = "best"\n', 2, "place.placement", "not one of pack, spread", ""),
    ("[place]\nplacement = []\n", 2, "place.placement", "not one of pack, spread", ""),
    ("[place]\nmax_tenants = 0\n", 2, "place.max_tenants", "from 1 up", ""),
    ("[place]\nmax_tenants = true\n", 2, "place.max_tenants", "true is not a whole number", ""),
    ('[place]\nexclusive_accounts = "ann"\n', 2, "place.exclusive_accounts", "not a list", '["ann", "ben"]'),
    ('[place]\nexclusive_accounts = ["ann", 3]\n', 2, "place.exclusive_accounts", "3 is not a name", ""),
    ('[idle]\ntrain_window = "half an hour"\n', 2, "idle.train_window", "not a duration", "30m"),
    ("[idle]\ntrain_window = 1.5\n", 2, "idle.train_window", "1.5 is not a duration", "30m"),
    ("[idle]\ntrain_window = -5\n", 2, "idle.train_window", "-5 is not a duration", "30m"),
    ('[idle]\ntrain_window = "10s"\n', 2, "idle.train_window", "shorter than four samples", "report"),
    ('[idle]\ngpu = "0.25%"\n', 2, "idle.gpu", "finer than 0.1%", ""),
    ("[idle]\ngpu = 3\n", 2, "idle.gpu", "not a share", '"5%"'),
    ("[idle]\ncpu = nan\n", 2, "idle.cpu", "not a number of CPU cores", "0.5"),
    ('[idle]\nio = "fast"\n', 2, "idle.io", "not a size", ""),
    (
        '[restart]\nbackoff_base = "1h"\n',
        2,
        "restart.backoff_base",
        "backoff_base (1h00m) is more than backoff_max (10m00s)",
        "raise backoff_max",
    ),
    (
        '[limits]\nmax_time = "1h"\n',
        2,
        "limits.max_time",
        "default_time (1d00h) is more than max_time (1h00m)",
        "lower default_time",
    ),
    ("[limits]\ndefault_time = 0\n", 2, "limits.default_time", "could not run", "24h"),
    ('[limits]\nwarn = "90"\n', 2, "limits.warn", "not a share", ""),
    ('[daemon]\nstate_dir = "state"\n', 2, "daemon.state_dir", "not an absolute path", ""),
    ('[daemon]\nadmin_group = ""\n', 2, "daemon.admin_group", "not a name", ""),
    ("[daemon]\nsocket_mode = 0o660\n", 2, "daemon.socket_mode", "432 is not a file mode", '"0660"'),
    ('[daemon]\nsimulate = "32G"\n', 2, "daemon.simulate", "not a list", "32607M"),
    ("[daemon]\nsimulate = [0]\n", 2, "daemon.simulate", "size 0", ""),
    ('[daemon]\nstrangers = "stop"\n', 2, "daemon.strangers", "not one of report", ""),
    ('[daemon]\ncontainment = "docker"\n', 2, "daemon.containment", "auto, systemd, cgroup, session", ""),
    ('[daemon]\nsample = "1m"\n', 2, "daemon.sample", "from 1s to 10s", "5s"),
    ("[daemon]\ntick = 1\n", 2, "daemon.tick", "no such key", ""),
    ('[logs]\nretention = "36h"\n', 2, "logs.retention", "not a number of days", "30d"),
    ("[logs]\ncap = 0\n", 2, "logs.cap", "at least 1 MiB", ""),
]


@pytest.mark.parametrize(("text", "line", "key", "problem", "way_out"), WRONG, ids=[str(row[2]) for row in WRONG])
def test_an_error_names_file_line_key_and_the_way_out(
    write: Write, text: str, line: int, key: str, problem: str, way_out: str
) -> None:
    path = write(text)
    with pytest.raises(GpuqueueError) as caught:
        load(path)
    error = caught.value
    assert error.code is ErrorCode.INVALID
    assert error.message.startswith(f"{path}:{line}: {key}: ")
    assert problem in error.message
    assert way_out in error.message + error.hint
    assert "\n" not in error.message + error.hint


@pytest.mark.parametrize(
    ("text", "line"),
    [("[daemon\n", ":1"), ("a = 1\n\nb = \n", ":3"), ("a = 1\na = 2\n", ":2"), ('a = "\udcff"\n', ":1")],
)
def test_what_is_no_toml_is_refused_with_its_line(write: Write, text: str, line: str) -> None:
    path = write(text)
    with pytest.raises(GpuqueueError) as caught:
        load(path)
    assert caught.value.code is ErrorCode.INVALID
    assert caught.value.message.startswith(f"{path}{line}: not ")
    assert caught.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuqueueError, match=r"cannot read .*/none\.toml: No such file") as caught:
        load(tmp_path / "none.toml")
    assert caught.value.code is ErrorCode.INVALID


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(GpuqueueError, match="Is a directory"):
        load(tmp_path)
