"""tests/gpu/run.sh itself, where there is no GPU: on the stand-ins, and where there is nothing at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nvml_standin
from tests.nvml_standin import StandInCard

SCRIPT = Path(__file__).parent / "run.sh"


def _run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT)],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_without_a_gpu_it_says_so_in_one_line_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / nvml_standin.SONAME).write_text("not a library: hides whatever the machine has")
    done = _run(LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no NVIDIA GPU here, nothing checked")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.e2e
def test_its_checks_pass_on_cards_that_behave(tmp_path: Path) -> None:
    """NVML's, PCI's and CUDA's orders differ (scenario 5)."""
    first = StandInCard(uuid="GPU-aaaa", bus="00000000:17:00.0", total_mib=46068, reserved_mib=450)
    second = StandInCard(uuid="GPU-bbbb", bus="00000000:65:00.0", total_mib=32607, reserved_mib=489)
    third = StandInCard(uuid="GPU-cccc", bus="00000000:C1:00.0", total_mib=32607, reserved_mib=489)
    for card in (first, second, third):
        card.simdir = tmp_path / "sim"
    nvml_standin.write_cards(tmp_path / "cards", [second, third, first])
    done = _run(GQ_REAL_GPU_TORCH="0", GQ_CUDA_STANDIN_CONTEXT="300", **nvml_standin.environment(tmp_path / "cards"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 of 13 checks passed" in done.stdout
