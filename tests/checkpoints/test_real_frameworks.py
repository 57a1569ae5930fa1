"""Real checkpoints of real frameworks, damaged in every way: the newest complete one is picked, no other.

Needs what tests/requirements-ml.txt lists; each test says which framework it misses when it is skipped.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.checkpoints.newest import all_checkpoints, newest_complete
from tests.checkpoints.torture import damage_everything, picked

pytestmark = pytest.mark.ml
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SEEDS = [1, 2]


@pytest.fixture
def causal_model() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    return transformers.LlamaForCausalLM(config)


def hf_training(model: Any, output: Path, callbacks: Any = (), cls: Any = None, **settings: Any) -> Any:
    """A Trainer that is ready to run: 12 steps, saved every 2."""
    import transformers

    defaults = {
        "output_dir": str(output), "max_steps": 12, "save_steps": 2, "per_device_train_batch_size": 1,
        "use_cpu": True, "report_to": [], "disable_tqdm": True,
    }  # fmt: skip
    arguments = transformers.TrainingArguments(**(defaults | settings))
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(8)]
    trainer_class = cls or transformers.Trainer
    return trainer_class(model=model, args=arguments, train_dataset=data, callbacks=list(callbacks))


@pytest.mark.parametrize("seed", SEEDS)
def test_hf_trainer(tmp_path: Path, causal_model: Any, seed: int) -> None:
    hf_training(causal_model, tmp_path).train()
    assert [verdict.step for verdict in all_checkpoints(tmp_path)] == [2, 4, 6, 8, 10, 12]
    tried = damage_everything(tmp_path, tmp_path / "checkpoint-12", tmp_path / "checkpoint-10", seed)
    assert tried > 40


def test_hf_trainer_below_a_versioned_directory_as_ms_swift_has_it(tmp_path: Path, causal_model: Any) -> None:
    output = tmp_path / "output" / "v3-20260101-120000"
    hf_training(causal_model, output, max_steps=4).train()
    damage_everything(tmp_path, output / "checkpoint-4", output / "checkpoint-2", seed=3)


def test_hf_trainer_that_saves_the_model_only(tmp_path: Path, causal_model: Any) -> None:
    hf_training(causal_model, tmp_path, max_steps=4, save_only_model=True).train()
    damage_everything(tmp_path, tmp_path / "checkpoint-4", tmp_path / "checkpoint-2", seed=4)


def test_a_first_hf_checkpoint_without_its_optimizer_is_incomplete(tmp_path: Path, causal_model: Any) -> None:
    hf_training(causal_model, tmp_path, max_steps=2).train()
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "trainer_state.json"):
        path = tmp_path / "checkpoint-2" / name
        aside = path.rename(tmp_path / "aside")
        assert picked(tmp_path) is None, name
        aside.rename(path)
    assert picked(tmp_path) == str(tmp_path / "checkpoint-2")


def test_hf_sharded_weights(tmp_path: Path, causal_model: Any) -> None:
    hf_training(causal_model, tmp_path, max_steps=4).train()
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").unlink()
        causal_model.save_pretrained(tmp_path / f"checkpoint-{step}", max_shard_size="3KB")
    assert (tmp_path / "checkpoint-4" / "model.safetensors.index.json").exists()
    damage_everything(tmp_path, tmp_path / "checkpoint-4", tmp_path / "checkpoint-2", seed=5)


def test_hf_peft_adapters(tmp_path: Path, causal_model: Any) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = peft.get_peft_model(causal_model, peft.LoraConfig(r=2, target_modules="all-linear"))
    hf_training(model, tmp_path, max_steps=4).train()
    newest = tmp_path / "checkpoint-4"
    assert (newest / "adapter_model.safetensors").exists()
    # The model card is prose: no harm in half of it.
    damage_everything(tmp_path, newest, tmp_path / "checkpoint-2", 6, lambda path: path.suffix == ".md")


def test_hf_just_in_time_save_that_finished(tmp_path: Path, causal_model: Any) -> None:
    import transformers

    class Signalled(transformers.TrainerCallback):
        """Sends SIGTERM once, then makes the steps long enough for the checkpoint to be requested."""

        sent = False

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3 and not self.sent:
                self.sent = True
                os.kill(os.getpid(), signal.SIGTERM)
            if self.sent and state.global_step >= 3:
                signal.sigtimedwait([], 0.2)

    before = signal.getsignal(signal.SIGTERM)
    try:
        trainer = hf_training(
            causal_model, tmp_path, [Signalled()], max_steps=200, save_steps=2, enable_jit_checkpoint=True
        )
        trainer.train()
    finally:
        signal.signal(signal.SIGTERM, before)
    newest = newest_complete(tmp_path).checkpoint
    assert newest is not None
    assert 3 <= newest.step < 200
    # A request that is seen just before the optimizer's step saves what was before it, and the step is still counted.
    assert newest.step in (trainer.state.global_step - 1, trainer.state.global_step)
    assert newest.step == max(int(path.name.removeprefix("checkpoint-")) for path in tmp_path.glob("checkpoint-*"))


def test_hf_just_in_time_save_that_was_killed(tmp_path: Path, causal_model: Any) -> None:
    import transformers
    from transformers.trainer_jit_checkpoint import CheckpointManager

    class DiesWhileSaving(transformers.Trainer):
        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            if self.state.global_step == 4:
                raise KeyboardInterrupt
            super()._save_optimizer_and_scheduler(output_dir)

    trainer = hf_training(causal_model, tmp_path, cls=DiesWhileSaving, max_steps=3)
    trainer.train()
    trainer.state.global_step = 4
    with pytest.raises(KeyboardInterrupt):
        CheckpointManager(trainer).execute_jit_checkpoint()
    assert (tmp_path / "checkpoint-4" / "checkpoint-is-incomplete.txt").exists()
    newest = newest_complete(tmp_path)
    assert newest.checkpoint is not None
    assert newest.checkpoint.step == 3
    assert [(skipped.step, "not finished" in skipped.reason) for skipped in newest.skipped] == [(4, True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_lightning(tmp_path: Path, seed: int) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 4)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=12, default_root_dir=tmp_path, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(every_n_train_steps=4, save_top_k=-1, save_last=True)],
    )  # fmt: skip
    data = torch.utils.data.TensorDataset(torch.randn(40, 8))
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=2))
    folder = tmp_path / "lightning_logs" / "version_0" / "checkpoints"
    last, numbered = folder / "last.ckpt", folder / "epoch=0-step=12.ckpt"
    assert {verdict.step for verdict in all_checkpoints(tmp_path)} == {4, 8, 12}
    damage_everything(tmp_path, numbered, last, seed)
    numbered.unlink()
    damage_everything(tmp_path, last, folder / "epoch=0-step=8.ckpt", seed)
    trainer.save_checkpoint(folder / "hpc_ckpt_1.ckpt")
    assert newest_complete(tmp_path).checkpoint.step == 12  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", SEEDS)
def test_torch_distributed_checkpoint(tmp_path: Path, seed: int) -> None:
    from torch.distributed import checkpoint

    model = torch.nn.Linear(50, 60)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 50)).sum().backward()
    optimizer.step()
    for step in (9, 10):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        checkpoint.save(state, checkpoint_id=tmp_path / f"step-{step}", no_dist=True)
    damage_everything(tmp_path, tmp_path / "step-10", tmp_path / "step-9", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_torch_save_in_its_old_format_and_the_new(tmp_path: Path, seed: int) -> None:
    state = {"model": torch.nn.Linear(50, 60).state_dict(), "half": torch.ones(5, dtype=torch.bfloat16)}
    for zipped in (False, True):
        folder = tmp_path / str(zipped)
        folder.mkdir()
        for step in (9, 10):
            path = folder / f"model_step_{step}.pt"
            torch.save(state | {"step": step}, path, _use_new_zipfile_serialization=zipped)
        damage_everything(folder, folder / "model_step_10.pt", folder / "model_step_9.pt", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_accelerate(tmp_path: Path, seed: int) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = accelerate.Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(50, 60)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for _ in range(11):
        accelerator.backward(model(torch.randn(2, 50)).sum())
        optimizer.step()
        accelerator.save_state()
    folder = tmp_path / "checkpoints"
    damage_everything(tmp_path, folder / "checkpoint_10", folder / "checkpoint_9", seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["ocdbt", "composite", "zarr", "zarr3"])
def test_orbax(tmp_path: Path, seed: int, kind: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    orbax = pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    for step in (9, 10):
        state = {
            "w": jax.numpy.arange(3000.0) * step,
            "b": {"c": jax.numpy.ones((7, 5)), "zero": jax.numpy.zeros(4)},
        }
        if kind in ("zarr", "zarr3"):
            handler = orbax.PyTreeCheckpointHandler(use_ocdbt=kind == "zarr3", use_zarr3=kind == "zarr3")
            orbax.Checkpointer(handler).save(tmp_path / f"step_{step}", args=orbax.args.PyTreeSave(state))
            continue
        items = orbax.args.StandardSave(state)
        if kind == "composite":
            items = orbax.args.Composite(state=items, extra=orbax.args.JsonSave({"seen": step}))
        with orbax.CheckpointManager(tmp_path) as manager:
            manager.save(step, args=items)
            manager.wait_until_finished()
    prefix = "step_" if kind.startswith("zarr") else ""
    # That commit_success.txt is there is what counts; what it says is not read by anybody.
    damage_everything(
        tmp_path,
        tmp_path / f"{prefix}10",
        tmp_path / f"{prefix}9",
        seed,
        lambda p: p.name == "commit_success.txt",
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_deepspeed(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    deepspeed = pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    model = torch.nn.Linear(50, 60)
    settings = {
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=torch.optim.AdamW(model.parameters()))
    for step in range(1, 11):
        engine.backward(engine(torch.randn(1, 50).bfloat16()).sum())
        engine.step()
        if step >= 9:
            engine.save_checkpoint(str(tmp_path))
    damage_everything(tmp_path, tmp_path / "global_step10", tmp_path / "global_step9", seed)
    (tmp_path / "latest").write_text("global_step9")
    assert picked(tmp_path) == str(tmp_path / "global_step9")
    (tmp_path / "latest").write_text("")
    assert picked(tmp_path) is None


def test_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.random.normal((100, 20))), w=tf.Variable(tf.ones(7)))
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=None)
    for step in (9, 10):
        manager.save(step)
    assert picked(tmp_path) == manager.latest_checkpoint
    for path in sorted(tmp_path.glob("ckpt-10.*")):
        whole = path.read_bytes()
        for length in range(0, len(whole), 7):
            path.write_bytes(whole[:length])
            assert picked(tmp_path) == str(tmp_path / "ckpt-9"), (path.name, length)
        path.unlink()
        assert picked(tmp_path) == str(tmp_path / "ckpt-9"), path.name
        path.write_bytes(whole)
    assert picked(tmp_path) == str(tmp_path / "ckpt-10")


@pytest.mark.parametrize("seed", SEEDS)
def test_torchtune(tmp_path: Path, causal_model: Any, seed: int) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed, torchtune needs it")
    checkpointing = pytest.importorskip(
        "torchtune.training.checkpointing", reason="torchtune is not installed", exc_type=ImportError
    )
    base = tmp_path / "base"
    causal_model.save_pretrained(base)
    output = tmp_path / "output"
    checkpointer = checkpointing.FullModelHFCheckpointer(
        checkpoint_dir=str(base), checkpoint_files=["model.safetensors"], model_type="LLAMA3",
        output_dir=str(output),
    )  # fmt: skip
    for epoch in (9, 10):
        state = checkpointer.load_checkpoint()
        state |= {"optimizer": {"lr": 1.0}, "epochs_run": epoch + 1, "seed": 1}
        checkpointer.save_checkpoint(state, epoch=epoch, intermediate_checkpoint=True)
    # The model card is prose: no harm in half of it.
    damage_everything(output, output / "epoch_10", output / "epoch_9", seed, lambda path: path.suffix == ".md")
    checkpointer.save_checkpoint(checkpointer.load_checkpoint(), epoch=11)
    assert picked(output) == str(output / "epoch_10"), "a save without its recipe state"
    recipe = output / "recipe_state" / "recipe_state.pt"
    recipe.write_bytes(recipe.read_bytes()[:-30])
    assert picked(output) is None


def test_flax_msgpack(tmp_path: Path) -> None:
    serialization = pytest.importorskip("flax.serialization", reason="flax is not installed")
    import numpy as np

    for step in (9, 10):
        state = {"w": np.arange(3000.0), "step": step}
        (tmp_path / f"checkpoint_{step}.msgpack").write_bytes(serialization.to_bytes(state))
    damage_everything(tmp_path, tmp_path / "checkpoint_10.msgpack", tmp_path / "checkpoint_9.msgpack", seed=7)


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_numpy(tmp_path: Path, suffix: str) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    paths = {step: tmp_path / f"state_{step}{suffix}" for step in (9, 10)}
    for path in paths.values():
        if suffix == ".npz":
            numpy.savez(path, w=numpy.arange(300.0), step=1)
        else:
            numpy.save(path, numpy.ones((20, 30), dtype="float32"))
    damage_everything(tmp_path, paths[10], paths[9], seed=8)


def test_keras_and_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    for step in (9, 10):
        with h5py.File(tmp_path / f"model-{step}.weights.h5", "w") as file:
            file.create_dataset("w", data=[1.0] * 500)
    damage_everything(tmp_path, tmp_path / "model-10.weights.h5", tmp_path / "model-9.weights.h5", seed=9)


def test_ultralytics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended strips `last.pt` and `best.pt` of their optimizer: only `epoch<N>.pt` can be resumed."""
    monkeypatch.setenv("YOLO_OFFLINE", "1")
    ultralytics = pytest.importorskip("ultralytics", reason="ultralytics is not installed (it needs torchvision)")
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed, ultralytics needs it")
    numpy = pytest.importorskip("numpy")
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / "images" / f"{number}.jpg"), numpy.full((32, 32, 3), number, numpy.uint8))
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    data = tmp_path / "data.yaml"
    data.write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: {{0: thing}}\n")

    def train(name: str, epochs: int, stop_at: int | None = None) -> Path:
        model = ultralytics.YOLO("yolov8n.yaml")

        def stop(trainer: Any) -> None:
            if trainer.epoch == stop_at:
                raise KeyboardInterrupt

        model.add_callback("on_model_save", stop)
        with suppress(KeyboardInterrupt):
            model.train(
                data=str(data), epochs=epochs, imgsz=32, batch=4, device="cpu", project=str(tmp_path / "runs"),
                name=name, save_period=1, plots=False, verbose=False, workers=0, val=False,
            )  # fmt: skip
        return tmp_path / "runs" / name / "weights"

    ended = train("ended", 3)
    assert picked(ended.parent) == str(ended / "epoch2.pt")
    whole = (ended / "epoch2.pt").read_bytes()
    for length in (0, 1000, len(whole) // 2, len(whole) - 1):
        (ended / "epoch2.pt").write_bytes(whole[:length])
        assert picked(ended.parent) == str(ended / "epoch1.pt"), length
    killed = train("killed", 100, stop_at=1)
    assert picked(killed.parent) in (str(killed / "last.pt"), str(killed / "best.pt"), str(killed / "epoch1.pt"))
    for name in ("last.pt", "best.pt", "epoch1.pt"):
        if (killed / name).exists():
            (killed / name).write_bytes((killed / name).read_bytes()[:-100])
    assert picked(killed.parent) == str(killed / "epoch0.pt")
