"""The start-up hook of --cap in real Python processes. `torch` and `tensorflow` are stand-ins that write down what
they are asked, with the order of events of the real ones; the real PyTorch (CPU) is asked where it is installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hook.standins import TENSORFLOW, TORCH

HOOK = Path(__file__).resolve().parents[2] / "gpuqueue/hook"
PYTHONS = [
    found
    for minor in ("2.7", "3.6", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14")
    if (found := shutil.which(f"python{minor}"))
]


class Ran(NamedTuple):
    status: int
    out: str
    err: str


class Job(NamedTuple):
    """A directory of modules that the job imports, behind the hook on its PYTHONPATH."""

    modules: Path

    def module(self, name: str, text: str) -> None:
        (self.modules / f"{name}.py").write_text(text)

    def __call__(self, text: str, *options: str, python: str = sys.executable, cap: str = "8000", **env: str) -> Ran:
        paths = os.pathsep.join([str(HOOK), str(self.modules)])
        done = subprocess.run(
            [python, *options, "-c", text],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "GQ_CAP_MIB": cap, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ran(done.returncode, done.stdout.strip(), done.stderr.strip())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "modules").mkdir()
    made = Job(tmp_path / "modules")
    made.module("torch", TORCH)
    made.module("tensorflow", TENSORFLOW)
    return made


def test_torch_is_capped_when_cuda_is_initialised_and_not_before(job: Job) -> None:
    ran = job("import torch; print(torch.cuda.capped); torch.cuda.init(); print(torch.cuda.capped)")
    assert ran == Ran(0, "{}\n{0: 0.25, 1: 0.25}", "")


def test_a_worker_of_torchrun_caps_its_own_card(job: Job) -> None:
    assert job("import torch; torch.cuda.init(); print(torch.cuda.capped)", LOCAL_RANK="1").out == "{1: 0.25}"


def test_children_are_capped_too(job: Job) -> None:
    child = "import torch; torch.cuda.init(); print(torch.cuda.capped)"
    ran = job(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    assert ran.out == "{0: 0.25, 1: 0.25}"


def test_a_fraction_of_the_users_own_holds(job: Job) -> None:
    options = "per_process_memory_fraction:0.5"
    ran = job("import torch; torch.cuda.init(); print(torch.cuda.capped)", PYTORCH_CUDA_ALLOC_CONF=options)
    assert (ran.out, ran.status) == ("{}", 0)
    assert "that one holds" in ran.err


@pytest.mark.parametrize("cap", ["", "0", "many"])
def test_without_a_cap_nothing_waits_for_anything(job: Job, cap: str) -> None:
    ran = job(
        "import sys, torch; torch.cuda.init(); print(torch.cuda.capped, 'AfterImport' in str(sys.meta_path))",
        cap=cap,
    )
    assert (ran.out, ran.err) == ("{} False", "")


def test_nothing_is_left_of_the_hook_once_it_is_used(job: Job) -> None:
    ran = job(
        "import sys, torch, tensorflow; print('AfterImport' in str(sys.meta_path),"
        f" {str(HOOK)!r} in sys.path, type(torch.__loader__).__name__,"
        " vars(torch.__loader__).keys() & {'exec_module'})"
    )
    assert ran == Ran(0, "False False SourceFileLoader set()", "")


def test_what_the_hook_meets_in_a_strange_torch_does_not_break_the_job(job: Job) -> None:
    job.module("torch", "class cuda: pass\n")
    ran = job("import torch; print('goes on')")
    assert (ran.status, ran.out) == (0, "goes on")
    assert ran.err.startswith("gq: torch is not capped: ") and len(ran.err.splitlines()) == 1
    job.module("torch", TORCH.replace("device_count(): return 2", "device_count(): raise RuntimeError('no driver')"))
    ran = job("import torch; torch.cuda.init(); print('goes on')")
    assert (ran.status, ran.out, ran.err) == (0, "goes on", "gq: PyTorch is not capped: RuntimeError('no driver')")


def test_an_import_that_fails_is_the_jobs_own_and_may_be_tried_again(job: Job) -> None:
    (job.modules / "torch.py").unlink()
    ran = job(
        f"import pathlib\ntry: import torch\nexcept ImportError as error: print(error)\n"
        f"pathlib.Path({str(job.modules / 'torch.py')!r}).write_text({TORCH!r})\nimport importlib\n"
        "importlib.invalidate_caches(); import torch; torch.cuda.init(); print(torch.cuda.capped)"
    )
    assert ran == Ran(0, "No module named 'torch'\n{0: 0.25, 1: 0.25}", "")


# -- the user's own start-up files -------------------------------------------------------------------------------


def test_the_users_own_sitecustomize_runs_as_before(job: Job) -> None:
    job.module("sitecustomize", "import sys; sys.mine = __file__")
    ran = job("import sys, sitecustomize; print(sys.mine == sitecustomize.__file__)")
    assert ran == Ran(0, "True", "")


def test_an_error_in_it_is_told_by_python_as_before(job: Job) -> None:
    job.module("sitecustomize", "import no_such_thing")
    ran = job("print('goes on')")
    assert (ran.status, ran.out) == (0, "goes on")
    assert "no_such_thing" in ran.err
    assert "gq:" not in ran.err


@pytest.mark.parametrize("options", [["-S"], ["-I"]])
def test_a_python_that_is_told_to_read_no_start_up_files_is_not_capped(job: Job, options: list[str]) -> None:
    ran = job("import sys; print('gpuqueue_cap' in sys.modules)", *options)
    assert ran == Ran(0, "False", "")


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_starts_and_those_from_3_8_on_are_capped(job: Job, python: str) -> None:
    job.module("sitecustomize", "import sys; sys.mine = 1")
    version = subprocess.run(
        [python, "-S", "-c", "import sys; print(sys.version_info[:2] >= (3, 8))"], capture_output=True, text=True
    )
    if version.returncode != 0:
        pytest.skip(f"{python} does not run here: {version.stderr.strip().splitlines()[:1]}")
    ran = job("import sys; print(str(sys.mine) + str('gpuqueue_cap' in sys.modules))", python=python)
    assert (ran.status, ran.out) == (0, f"1{version.stdout.strip()}")
    if "True" in version.stdout:
        assert (
            job("import torch; torch.cuda.init(); print(torch.cuda.capped)", python=python).out == "{0: 0.25, 1: 0.25}"
        )
    else:
        assert "older than 3.8" in ran.err


# -- the report --------------------------------------------------------------------------------------------------


def test_the_report_has_the_peaks_of_the_fullest_card_and_of_all_processes(job: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    for kept in (None, {"peak_allocated_mib": 500, "peak_reserved_mib": 1}, "not what we write"):
        if kept is not None:
            report.write_text(json.dumps({"torch": kept}))
        assert job("import torch; torch.cuda.init()", GQ_REPORT=str(report)) == Ran(0, "", "")
        allocated = 500 if isinstance(kept, dict) else 101
        found = {"version": "2.13.0+standin", "peak_allocated_mib": allocated, "peak_reserved_mib": 201}
        assert json.loads(report.read_text()) == {"torch": found}
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("report")] == ["report.json"]


def test_the_report_has_what_the_peak_of_the_fullest_card_consists_of(job: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    parts = {"frozen_mib": 2, "trained_mib": 1, "gradients_mib": 1, "optimizer_mib": 2, "rest_mib": 95}
    steps = "import torch; torch.cuda.init(); torch.optimizer.step(); torch.optimizer.step()"
    assert job(steps, GQ_REPORT=str(report)) == Ran(0, "", "")
    told = json.loads(report.read_text())["torch"]
    assert (told["parts"], sum(parts.values())) == (parts, told["peak_allocated_mib"])
    assert job("import torch; torch.cuda.init()", GQ_REPORT=str(report)) == Ran(0, "", "")  # a process without steps
    assert json.loads(report.read_text())["torch"]["parts"] == parts


def test_a_count_that_fails_is_in_the_report_and_the_step_stands(job: Job, tmp_path: Path) -> None:
    steps = "import torch; torch.cuda.init(); one = torch.optimizer; one.state = 7; one.step(); one.step()"
    ran = job(f"{steps}; print('went on')", GQ_REPORT=str(tmp_path / "report.json"))
    assert ran == Ran(0, "went on", "")
    told = json.loads((tmp_path / "report.json").read_text())["torch"]
    assert "parts" not in told
    assert told["parts_fault"].startswith("AttributeError")
    assert told["peak_allocated_mib"] == 101


def test_a_torch_that_knows_no_hook_for_all_optimizers_is_not_asked(job: Job, tmp_path: Path) -> None:
    job.module("torch", TORCH.replace('sys.modules["torch.optim.optimizer"] = optimizer', ""))
    steps = "import torch; torch.cuda.init(); torch.optimizer.step(); print(torch.cuda.capped)"
    assert job(steps, GQ_REPORT=str(tmp_path / "report.json")) == Ran(0, "{0: 0.25, 1: 0.25}", "")
    assert json.loads((tmp_path / "report.json").read_text())["torch"].keys() == {
        "version",
        "peak_allocated_mib",
        "peak_reserved_mib",
    }


def test_without_cuda_there_is_nothing_to_report(job: Job, tmp_path: Path) -> None:
    assert job("import torch", GQ_REPORT=str(tmp_path / "report.json")).err == ""
    assert not (tmp_path / "report.json").exists()


def test_a_report_that_cannot_be_written_leaves_the_exit_status_alone(job: Job, tmp_path: Path) -> None:
    ran = job("import torch; torch.cuda.init(); raise SystemExit(3)", GQ_REPORT=str(tmp_path / "gone/report.json"))
    assert ran.status == 3
    assert ran.err.startswith("gq: no report of PyTorch's memory")


# -- TensorFlow --------------------------------------------------------------------------------------------------

RUN_TF = (
    "import sys; context = sys.modules['tensorflow.python.eager.context'].context(); "
    "context.ensure_initialized(); context.ensure_initialized(); print(tf.config.limits)"
)


def test_tensorflow_is_limited_just_before_it_takes_its_cards(job: Job) -> None:
    ran = job(f"import tensorflow as tf; print(tf.config.limits); {RUN_TF}")
    assert ran == Ran(0, "{}\ninitialised\ninitialised\n{'GPU:0': [8000]}", "")


def test_memory_growth_and_limits_of_the_users_own_hold(job: Job) -> None:
    grown = job(f"import tensorflow as tf; tf.config.growth = True; {RUN_TF}")
    assert (grown.status, grown.out.splitlines()[-1]) == (0, "{}")
    assert "memory growth" in grown.err
    limited = job(f"import tensorflow as tf; tf.config.limits['GPU:0'] = [1]; {RUN_TF}")
    assert limited.out.splitlines()[-1] == "{'GPU:0': [1]}"


@pytest.mark.ml
def test_the_real_pytorch_takes_the_queued_cap(job: Job) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: make test-ml")
    (job.modules / "torch.py").unlink()
    ran = job(
        "import torch; print([call for call, _ in torch.cuda._queued_calls if 'gpuqueue' in call.__module__] != [],"
        " torch.cuda.is_initialized(), torch.zeros(2).sum().item())"
    )
    assert ran == Ran(0, "True False 0.0", "")
