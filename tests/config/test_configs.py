"""The configurations that are shipped in configs/."""

import re
import tomllib
from pathlib import Path

import pytest

from gpuqueue.config.keys import NOMINAL, POLICY, SETTINGS
from gpuqueue.config.load import load
from gpuqueue.config.settings import Settings
from gpuqueue.core.policy import Mode, Nominal, Placement
from gpuqueue.wire.units import parse_mib

CONFIGS = Path(__file__).parents[2] / "configs"
DEFAULT = CONFIGS / "default.toml"


def test_the_default_configuration_equals_the_defaults() -> None:
    assert load(DEFAULT) == load(None) == Settings()


def uncommented() -> str:
    """default.toml with every commented-out key switched on."""
    return re.sub(r"(?m)^# (?=\w+ = |\[)", "", DEFAULT.read_text())


def test_the_default_configuration_shows_every_key(tmp_path: Path) -> None:
    shown = tomllib.loads(uncommented())
    for section, keys in {**SETTINGS, **POLICY}.items():
        assert set(shown[section]) == set(keys)
    assert set(shown["quota"]) == {"held_back", *NOMINAL, "borrowing", "half_life", "groups", "users"}
    everything = tmp_path / "everything.toml"
    everything.write_text(uncommented())
    assert load(everything) != Settings()


def test_what_the_default_configuration_says_of_places_is_so_for_root(tmp_path: Path) -> None:
    shown = tomllib.loads(uncommented())["daemon"]
    assert shown["state_dir"] == "/var/lib/gpuqueue"
    assert shown["socket"] == "/run/gpuqueue/gpuqueued.sock"
    assert shown["socket_mode"] == "0666"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.name)
def test_every_configuration_loads_and_says_what_it_is_for(path: Path) -> None:
    load(path)
    assert path.read_text().startswith("# ")
    assert max(map(len, path.read_text().splitlines())) <= 120


def test_lab_32g_gives_20g_of_training_and_keeps_10g_for_light_jobs() -> None:
    quota = load(CONFIGS / "lab-32g.toml").policy.quota
    assert quota.held_back_mib == 10240
    assert quota.default == Nominal(train_mib=20480, light_mib=10240)
    assert not quota.borrowing


@pytest.mark.parametrize("page", ["docs/install.md", "README.md"])
def test_what_people_are_told_to_submit_is_taken_with_the_configuration_that_admins_are_told_to_install(
    page: str,
) -> None:
    quota = load(CONFIGS / "lab-32g.toml").policy.quota
    assert quota.default.train_mib is not None
    told = (CONFIGS.parent / page).read_text()
    assert "configs/lab-32g.toml" in told
    _, _, told = told.partition("## Five minutes as a user") if page == "README.md" else ("", "", told)
    claims = [parse_mib(size) for size in re.findall(r"gq submit --vram (\d+G)", told)]
    assert claims
    assert max(claims) <= quota.default.train_mib


def test_two_cards_lets_phd_students_fill_the_training_part_of_both() -> None:
    policy = load(CONFIGS / "two-cards.toml").policy
    held_back_mib = policy.quota.held_back_mib
    assert held_back_mib == 6 * 1024
    assert policy.quota.default.train_mib == 24 * 1024 - held_back_mib
    assert policy.quota.groups["phd"].train_mib == 2 * (24 * 1024 - held_back_mib)
    assert policy.place.placement is Placement.SPREAD


def test_single_user_holds_nothing_back_and_stops_nothing() -> None:
    settings = load(CONFIGS / "single-user.toml")
    assert settings.policy.quota.held_back_mib == 0
    assert settings.policy.idle.mode is Mode.REPORT
    assert settings.socket_mode == 0o600
    assert settings.state_dir == Path.home() / ".local/state/gpuqueue"
