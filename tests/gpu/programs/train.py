"""A training that saves checkpoints as Hugging Face's Trainer does, and resumes: train.py DIRECTORY STEPS EVERY.

With PyTorch a small model learns on the card; without it the card is kept busy through the CUDA driver."""

import json
import os
import sys
import time
from pathlib import Path

from driver import Driver, torch_with_cuda

from gpuqueue.simjob import layouts

STEP_S = 0.05


class DriverModel:
    def __init__(self) -> None:
        self._driver = Driver()
        self._driver.use()
        self._block = self._driver.allocate(256)

    def step(self) -> None:
        self._driver.work(self._block)

    def save(self, directory: Path, step: int) -> Path:
        return layouts.save(directory, "hf", step, 0)

    def load(self, checkpoint: Path) -> int:
        return layouts.read_step(checkpoint)


class TorchModel:
    def __init__(self, torch) -> None:
        self._torch = torch
        torch.manual_seed(0)
        self._model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1)).cuda()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)

    def step(self) -> None:
        batch = self._torch.randn(512, 1024, device="cuda")
        loss = (self._model(batch) - batch.sum(1, keepdim=True)).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._torch.cuda.synchronize()

    def save(self, directory: Path, step: int) -> Path:
        folder = directory / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        self._torch.save(self._model.state_dict(), folder / "pytorch_model.bin")
        self._torch.save(self._optimizer.state_dict(), folder / "optimizer.pt")
        self._torch.save({"last_epoch": step}, folder / "scheduler.pt")
        self._torch.save(self._torch.get_rng_state(), folder / "rng_state.pth")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        return folder

    def load(self, checkpoint: Path) -> int:
        self._model.load_state_dict(self._torch.load(checkpoint / "pytorch_model.bin"))
        self._optimizer.load_state_dict(self._torch.load(checkpoint / "optimizer.pt"))
        return int(json.loads((checkpoint / "trainer_state.json").read_text())["global_step"])


directory, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch = torch_with_cuda()
model = DriverModel() if torch is None else TorchModel(torch)
step = 0
if resume := os.environ.get("GQ_RESUME_FROM"):
    step = model.load(Path(resume))
    print(f"resumed at step {step}", flush=True)
print(f"pid {os.getpid()} trains with {'the CUDA driver' if torch is None else 'PyTorch'}", flush=True)
while step < steps:
    model.step()
    step += 1
    if step % every == 0:
        print(f"saved {model.save(directory, step)}", flush=True)
    time.sleep(STEP_S)
print(f"done at step {step}", flush=True)
