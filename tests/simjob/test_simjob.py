"""The stand-in training, run as a user runs it."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpuqueue.gpu import simdir
from gpuqueue.gpu.simulated import SimulatedCards
from gpuqueue.simjob.layouts import LAYOUTS, read_step, save

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def cards(tmp_path: Path) -> SimulatedCards:
    return SimulatedCards(tmp_path / "sim", [24564, 32607])


@pytest.fixture
def start(cards: SimulatedCards, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def starter(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("GQ_", "CUDA_"))}
        command = [sys.executable, "-m", "gpuqueue.simjob", *map(str, arguments)]
        started.append(
            subprocess.Popen(
                command,
                env={**base, **cards.job_environment(), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def _wait_for(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line.strip()
    raise AssertionError(f"it ended without saying {beginning!r}: {process.stderr and process.stderr.read()}")


def _held(cards: SimulatedCards) -> list[int]:
    return [card.used_mib for card in cards.read().cards]


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# cards


def test_it_takes_the_first_visible_card_where_it_is_not_pinned(cards: SimulatedCards, start: Start) -> None:
    _wait_for(start("--vram", "1G", CUDA_DEVICE_ORDER="PCI_BUS_ID"), "holds")
    assert _held(cards) == [1024, 0]


def test_without_pci_order_device_0_is_the_largest_card(cards: SimulatedCards, start: Start) -> None:
    _wait_for(start("--vram", "1G", CUDA_VISIBLE_DEVICES="0"), "holds")
    assert _held(cards) == [0, 1024]


@pytest.mark.parametrize(
    ("visible", "held"),
    [("0", [1024, 0]), ("1", [0, 1024]), ("SIM-0001", [0, 1024]), ("1,0", [1024, 1024]), ("1,9,0", [0, 1024])],
)
def test_pinning_is_obeyed_as_cuda_obeys_it(cards: SimulatedCards, start: Start, visible: str, held: list[int]) -> None:
    _wait_for(start("--vram", "1G", CUDA_VISIBLE_DEVICES=visible, CUDA_DEVICE_ORDER="PCI_BUS_ID"), "holds")
    assert _held(cards) == held


@pytest.mark.parametrize("visible", ["", "7", "-1", "SIM-", "GPU-1"])
def test_where_no_card_is_visible_it_dies_as_torch_does(start: Start, visible: str) -> None:
    code, _, err = _end(start("--vram", "1G", CUDA_VISIBLE_DEVICES=visible))
    assert code == 1
    assert err.splitlines()[-1] == "RuntimeError: No CUDA GPUs are available"


def test_a_job_without_vram_asks_for_no_card(start: Start) -> None:
    assert _end(start("--vram", "0", "--steps", "1", CUDA_VISIBLE_DEVICES=""))[0] == 0


def test_a_full_card_is_pytorchs_own_message_with_true_numbers(start: Start) -> None:
    pinned = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    tenant = start("--vram", "22G", **pinned)
    _wait_for(tenant, "holds")
    code, _, err = _end(start("--vram", "16G", **pinned))
    assert code == 1
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1] == (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
        " GPU 0 has a total capacity of 31.84 GiB of which 863.00 MiB is free."
        f" Process {tenant.pid} has 22.00 GiB memory in use."
        " Including non-PyTorch memory, this process has 9.00 GiB memory in use."
        " Of the allocated memory 8.86 GiB is allocated by PyTorch, and 144.00 MiB is reserved by PyTorch but"
        " unallocated. If reserved but unallocated memory is large try setting"
        " PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management"
        "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def test_it_grows_as_told_and_no_further(cards: SimulatedCards, start: Start) -> None:
    options = ("--vram", "1G", "--grow", "1G/2", "--grow-to", "3500M", "--step-seconds", "0.01", "--seconds", "60")
    start(*options, CUDA_VISIBLE_DEVICES="SIM-0000")
    _eventually(lambda: _held(cards) == [3500, 0])


def test_growing_beyond_the_card_is_out_of_memory(start: Start) -> None:
    code, _, err = _end(start("--vram", "20G", "--grow", "8G/step", "--step-seconds", "0.01", "--seconds", "60"))
    assert code == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB" in err


def test_utilisation_falls_to_nothing_when_it_idles_and_vram_stays(cards: SimulatedCards, start: Start) -> None:
    process = start("--vram", "1G", "--gpu-util", "88", "--idle-after", "0.3", "--seconds", "60")
    _wait_for(process, "holds")
    assert [card.gpu_percent for card in cards.read().cards] == [0, 88]
    _wait_for(process, "idle")
    _eventually(lambda: cards.read().cards[1].gpu_percent == 0)
    assert _held(cards) == [0, 1024]


# ends


def test_it_ends_after_its_steps_with_its_status(start: Start) -> None:
    code, out, _ = _end(start("--steps", "3", "--step-seconds", "0", "--exit-code", "7"))
    assert code == 7
    assert out.splitlines() == ["step 3/3", "done after step 3"]


def test_it_ends_after_its_seconds(start: Start) -> None:
    begin = time.monotonic()
    assert _end(start("--seconds", "0.5"))[0] == 0
    assert time.monotonic() - begin >= 0.5


@pytest.mark.parametrize(("step", "code"), [(0, 1), (4, 9)])
def test_a_crash_is_a_traceback_and_a_status(start: Start, step: int, code: int) -> None:
    asked = ("--exit-code", code) if code != 1 else ()
    got, _, err = _end(start("--steps", 9, "--step-seconds", 0, "--crash-at-step", step, *asked))
    assert got == code
    assert err.splitlines()[-1].endswith(f"simulated crash at step {step}")


def test_only_the_first_attempts_crash_if_asked(start: Start) -> None:
    options = ("--steps", 3, "--step-seconds", 0, "--crash-at-step", 2, "--crash-attempts", 1)
    assert _end(start(*options, GQ_ATTEMPT="1"))[0] == 1
    assert _end(start(*options, GQ_ATTEMPT="2"))[0] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_crash_can_be_a_signal(start: Start, number: signal.Signals) -> None:
    assert _end(start("--crash-at-step", 0, "--crash-signal", number.name))[0] == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_it_saves_on_the_stop_signal(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process = start("--vram", "1G", "--seconds", 60, "--step-seconds", 0.01, "--checkpoint-dir", tmp_path / "out")
    _wait_for(process, "step 10")
    process.send_signal(number)
    code, out, _ = _end(process)
    assert code == 128 + number
    saved = next(line.removeprefix("saved ") for line in out.splitlines() if line.startswith("saved"))
    assert read_step(Path(saved)) == int(saved.rpartition("-")[2]) >= 10


def test_the_status_after_a_stop_can_be_chosen(start: Start) -> None:
    process = start("--vram", "1G", "--seconds", 60, "--stop-exit-code", 0)
    _wait_for(process, "holds")
    process.terminate()
    assert _end(process)[0] == 0


def test_it_can_ignore_the_stop_signal(start: Start) -> None:
    process = start("--vram", "1G", "--seconds", 60, "--ignore-term")
    _wait_for(process, "holds")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        process.send_signal(number)
    _wait_for(process, "step 10")
    process.kill()
    assert _end(process)[0] == -signal.SIGKILL


# children


def test_the_escaped_child_outlives_it_in_a_session_of_its_own_and_holds_vram(
    cards: SimulatedCards, start: Start
) -> None:
    process = start("--vram", "1G", "--escape", "2G", "--seconds", 60)
    child = int(_wait_for(process, "escaped child").split()[2])
    try:
        process.kill()
        process.wait()
        assert os.getsid(child) not in (child, process.pid, os.getsid(0))
        _eventually(lambda: _held(cards) == [0, 2048])
    finally:
        os.kill(child, signal.SIGKILL)
    _eventually(lambda: _held(cards) == [0, 0])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_it_burns_cpu_in_children_that_end_with_it(start: Start) -> None:
    process = start("--cpu-util", 130, "--seconds", 60)
    _eventually(lambda: len(_children(process.pid)) == 2)
    children = _children(process.pid)
    _eventually(lambda: sum(map(_cpu_s, children)) > 0.3)
    process.kill()
    process.wait()
    # A zombie has ended: whoever inherited it may be in no hurry to look.
    _eventually(lambda: not any(_is_running(child) for child in children))


def test_it_writes_as_a_download_does(start: Start) -> None:
    process = start("--io-rate", "20M", "--seconds", 60)
    _eventually(lambda: len(_children(process.pid)) == 1)
    io = Path(f"/proc/{_children(process.pid)[0]}/io")

    def written() -> int:
        return int(next(line.split()[1] for line in io.read_text().splitlines() if line.startswith("wchar")))

    _eventually(lambda: written() > 5 * 1024 * 1024)


# checkpoints


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_layout_is_saved_and_resumed_from(start: Start, tmp_path: Path, layout: str) -> None:
    options = ("--step-seconds", 0, "--save-every", 10, "--checkpoint-dir", tmp_path / "out", "--layout", layout)
    code, out, _ = _end(start("--steps", 25, *options))
    assert code == 0
    newest = [line.removeprefix("saved ") for line in out.splitlines() if line.startswith("saved")][-1]
    code, out, _ = _end(start("--steps", 25, *options, GQ_RESUME_FROM=newest))
    assert code == 0
    assert out.splitlines()[0] == f"resumed from {newest} at step 20"


def test_what_the_framework_writes_last_is_written_last(start: Start, tmp_path: Path) -> None:
    process = start("--save-every", 1, "--save-seconds", 9, "--checkpoint-dir", tmp_path, "--step-seconds", 0)
    _eventually((tmp_path / "checkpoint-1" / "model.safetensors").exists)
    process.kill()
    process.wait()
    assert not (tmp_path / "checkpoint-1" / "trainer_state.json").exists()


def test_its_pytorch_files_are_whole_zip_files(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, "hf", 100, 0)
    with zipfile.ZipFile(checkpoint / "optimizer.pt") as archive:
        assert archive.testzip() is None
        assert "archive/data.pkl" in archive.namelist()


def test_a_checkpoint_cut_off_is_what_it_dies_of(start: Start, tmp_path: Path) -> None:
    whole = save(tmp_path, "plain", 7, 0)
    whole.write_bytes(whole.read_bytes()[:100])
    code, _, err = _end(start("--steps", 9, "--resume-from", whole))
    assert code == 1
    assert err.splitlines()[-1].startswith("RuntimeError: PytorchStreamReader failed reading zip archive")


# mistakes


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--vram", "22"], "'22' has no unit"),
        (["--gpu-util", "101"], "'101' is more than 100 %"),
        (["--seconds", "soon"], "'soon' is not a duration"),
        (["--layout", "hdf5"], "hdf5"),
        (["--crash-signal", "SIGFOO"], "'SIGFOO' is not a signal"),
        (["--save-every", "5"], "--checkpoint-dir"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(start: Start, arguments: list[str], named: str) -> None:
    code, out, err = _end(start(*arguments))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert named in err


def test_without_cards_it_says_where_they_come_from(start: Start, tmp_path: Path) -> None:
    code, _, err = _end(start("--vram", "1G", GQ_SIM_DIR=""))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--sim-dir" in err
    code, _, err = _end(start("--vram", "1G", "--sim-dir", tmp_path / "nowhere"))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "gpuqueued serve --simulate" in err


def test_beside_the_daemons_socket_it_finds_the_cards(cards: SimulatedCards, start: Start, tmp_path: Path) -> None:
    _wait_for(start("--vram", "1G", GQ_SIM_DIR="", GQ_SOCKET=str(tmp_path / "gpuqueue.sock")), "holds")
    assert sum(_held(cards)) == 1024


def test_it_starts_with_the_standard_library_alone() -> None:
    code = "import sys, gpuqueue.simjob.__main__; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    tops = {name.partition(".")[0] for name in loaded}
    assert tops <= sys.stdlib_module_names | {"gpuqueue", "__main__"} | _site_modules()
    assert simdir.__name__ in loaded


def _site_modules() -> set[str]:
    """What this interpreter loads before any program (editable installs, coverage hooks)."""
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in bare.stdout.split()}
