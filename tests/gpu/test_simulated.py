"""Simulated cards: shared by all users of the machine, honest, and trusting no file of theirs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuqueue.gpu import simdir
from gpuqueue.gpu.simdir import CardFull
from gpuqueue.gpu.simulated import SimulatedCards

HOLD = """
import os, sys, time
from pathlib import Path
from gpuqueue.gpu import simdir
directory, vram_mib, uid = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if uid:
    os.setuid(uid)
os.umask(0o077)
card = simdir.load_cards(directory)[0]
try:
    simdir.take(directory, card, vram_mib, 50)
    print("took", flush=True)
except simdir.CardFull as full:
    print("full", full.free_mib, flush=True)
    sys.exit(1)
time.sleep(60)
"""
NOBODY = 65534


@pytest.fixture
def cards(open_path: Path) -> SimulatedCards:
    return SimulatedCards(open_path / "sim", [32607])


@pytest.fixture
def sim(cards: SimulatedCards) -> Path:
    return Path(cards.job_environment()["GQ_SIM_DIR"])


@pytest.fixture
def hold(sim: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def starter(vram_mib: int, uid: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(sim), str(vram_mib), str(uid)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_simulated_card_says_that_it_is_one(tmp_path: Path) -> None:
    cards = SimulatedCards(tmp_path, [32607, 81559, 512])
    assert [card.name for card in cards.read().cards] == ["Simulated 32 GB", "Simulated 80 GB", "Simulated 512 MB"]
    assert all(card.uuid.startswith("SIM-") for card in cards.read().cards)
    assert cards.simulated
    assert cards.read().driver == "simulated"


def test_a_restarted_daemon_finds_the_same_cards_and_what_is_held_on_them(
    cards: SimulatedCards, sim: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    assert _said(hold(1000)) == "took"
    before = cards.read()
    cards.close()
    assert SimulatedCards(sim, [32607]).read() == before
    assert before.cards[0].used_mib == 1000


def test_of_many_that_race_for_a_card_only_those_that_fit_get_it(
    cards: SimulatedCards, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    said = [_said(process) for process in [hold(10240) for _ in range(8)]]
    assert sorted(said) == ["full 1887"] * 5 + ["took"] * 3
    assert cards.read().cards[0].used_mib == 3 * 10240


def test_taking_replaces_what_the_process_held_and_nothing_changes_when_it_does_not_fit(sim: Path) -> None:
    card = simdir.load_cards(sim)[0]
    simdir.take(sim, card, 20000, 10)
    simdir.take(sim, card, 32607, 200)
    with pytest.raises(CardFull) as full:
        simdir.take(sim, card, 32608, 10)
    assert (full.value.free_mib, full.value.others) == (32607, ())
    assert [(use.vram_mib, use.gpu_percent) for use in simdir.uses(sim)] == [(32607, 100)]
    simdir.take(sim, card, 0, 0)
    assert simdir.uses(sim) == []


def test_files_of_the_dead_are_swept(
    cards: SimulatedCards, sim: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold(1000)
    assert _said(process) == "took"
    assert len(list((sim / "use").iterdir())) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert cards.read().cards[0].used_mib == 0
    assert list((sim / "use").iterdir()) == []


def test_a_reused_pid_holds_nothing(cards: SimulatedCards, sim: Path) -> None:
    (sim / "use" / f"{os.getpid()}.1.{cards.read().cards[0].uuid}").write_text("1000 5\n")
    assert cards.read().cards[0].used_mib == 0


@pytest.mark.parametrize(
    "content", ["", "1000", "-1000 5", "1e3 5", "99999999999 5", "1000 5 7", "1000 " + "0" * 99, "\x00\xff"]
)
def test_a_file_that_makes_no_sense_counts_for_nothing(cards: SimulatedCards, sim: Path, content: str) -> None:
    card = simdir.load_cards(sim)[0]
    simdir.take(sim, card, 500, 5)
    own = next((sim / "use").iterdir())
    own.write_text(content, encoding="latin-1")
    reading = cards.read()
    assert reading.fault is None
    assert reading.cards[0].used_mib == 0


def test_links_pipes_and_strange_names_in_the_shared_directory_hang_or_hurt_nobody(
    cards: SimulatedCards, sim: Path, tmp_path: Path
) -> None:
    card = simdir.load_cards(sim)[0]
    simdir.take(sim, card, 500, 5)
    own = next((sim / "use").iterdir())
    real = own.rename(tmp_path / "elsewhere")
    own.symlink_to(real)
    assert cards.read().cards[0].used_mib == 0
    own.unlink()
    os.mkfifo(own)
    assert cards.read().cards[0].used_mib == 0
    own.unlink()
    own.mkdir()
    assert cards.read().cards[0].used_mib == 0
    (sim / "use" / "1.1.a-directory-of-the-dead").mkdir()
    (sim / "use" / "x.y.z").write_text("1 1")
    (sim / "use" / "²³.1.SIM").write_text("1 1")
    assert cards.read().fault is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: acts as two users")
class TestTwoUsers:
    def test_any_user_can_take_vram_and_all_see_it(
        self, cards: SimulatedCards, hold: Callable[..., subprocess.Popen[str]]
    ) -> None:
        assert _said(hold(20000, uid=NOBODY)) == "took"
        assert cards.read().cards[0].used_mib == 20000
        assert _said(hold(20000)) == "full 12607"

    def test_nobody_holds_vram_in_the_name_of_somebody_elses_process(self, cards: SimulatedCards, sim: Path) -> None:
        simdir.take(sim, simdir.load_cards(sim)[0], 500, 5)
        own = next((sim / "use").iterdir())
        os.chown(own, NOBODY, -1)
        assert cards.read().cards[0].used_mib == 0

    def test_a_user_can_neither_change_the_cards_nor_free_what_others_hold(self, sim: Path) -> None:
        simdir.take(sim, simdir.load_cards(sim)[0], 500, 5)
        own = next((sim / "use").iterdir())
        for attack in (f"rm -f {own}", f"echo 0 0 >{own}", f"echo [] >{sim}/cards.json", f"rm -f {sim}/lock"):
            done = subprocess.run(["sh", "-c", attack], user=NOBODY, capture_output=True, check=False)
            assert done.returncode != 0, attack
        assert [use.vram_mib for use in simdir.uses(sim)] == [500]
