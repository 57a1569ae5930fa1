"""Every layout, made by hand: what is complete, what is not, and every byte that can be lost."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.checkpoints.formats import pickled as pickled_format
from gpuqueue.checkpoints.formats import zstd
from gpuqueue.checkpoints.newest import all_checkpoints, newest_complete
from tests.checkpoints import by_hand
from tests.checkpoints.torture import damage_everything, picked


def accelerate(root: Path, step: int) -> Path:
    folder = root / "checkpoints" / f"checkpoint_{step}"
    by_hand.safetensors(folder / "model.safetensors")
    for name in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl"):
        by_hand.torch_zip(folder / name)
    return folder


def lightning(root: Path, step: int) -> Path:
    name = f"epoch=0-step={step}.ckpt"
    return by_hand.torch_zip(root / "lightning_logs" / "version_0" / "checkpoints" / name, {"global_step": step})


def distributed(root: Path, step: int) -> Path:
    return by_hand.dcp(root / f"step-{step}")


def deepspeed(root: Path, step: int) -> Path:
    folder = root / f"global_step{step}"
    by_hand.torch_zip(folder / "mp_rank_00_model_states.pt", {"dp_world_size": 2, "global_steps": step})
    for rank in range(2):
        by_hand.torch_zip(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    by_hand.write(root / "latest", folder.name)
    return folder


def hf_with_deepspeed(root: Path, step: int) -> Path:
    folder = by_hand.hf(root, step)
    (folder / "optimizer.pt").unlink()
    deepspeed(folder, step)
    return folder


def hf_with_fsdp(root: Path, step: int) -> Path:
    folder = by_hand.hf(root, step)
    for name in ("model.safetensors", "optimizer.pt"):
        (folder / name).unlink()
    by_hand.dcp(folder / "pytorch_model_fsdp_0")
    by_hand.dcp(folder / "optimizer_0")
    return folder


def hf_sharded(root: Path, step: int) -> Path:
    folder = by_hand.hf(root, step)
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{part}-of-00003.safetensors" for part in (1, 2, 3)]
    for name in names:
        by_hand.safetensors(folder / name)
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    by_hand.write(folder / "model.safetensors.index.json", json.dumps(index))
    return folder


def peft(root: Path, step: int) -> Path:
    folder = by_hand.hf(root, step)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    by_hand.write(folder / "adapter_config.json", "{}")
    return folder


def megatron(root: Path, step: int) -> Path:
    folder = root / f"iter_{step:07d}"
    for rank in ("mp_rank_00", "mp_rank_01"):
        by_hand.torch_zip(folder / rank / "model_optim_rng.pt")
    by_hand.write(root / "latest_checkpointed_iteration.txt", str(step))
    return folder


def torchtune(root: Path, step: int) -> Path:
    folder = root / f"epoch_{step}"
    by_hand.safetensors(folder / "ft-model-00001-of-00001.safetensors")
    by_hand.write(folder / "config.json", "{}")
    by_hand.torch_zip(root / "recipe_state" / "recipe_state.pt", {"epochs_run": step + 1})
    return folder


def orbax(root: Path, step: int) -> Path:
    return by_hand.orbax(root / str(step))


def fairseq(root: Path, step: int) -> Path:
    return by_hand.torch_zip(root / f"checkpoint_2_{step}.pt", {"optimizer_history": [{"num_updates": step}]})


def ultralytics(root: Path, step: int) -> Path:
    return by_hand.torch_zip(root / "runs" / "train" / "weights" / f"epoch{step}.pt", {"epoch": step})


def step_directory(root: Path, step: int) -> Path:
    folder = root / f"step_{step}"
    by_hand.torch_zip(folder / "model.pth")
    by_hand.torch_zip(folder / "optimizer.pth")
    return folder


def torch_file(root: Path, step: int) -> Path:
    return by_hand.torch_zip(root / f"model_{step}.pt")


def tensors_file(root: Path, step: int) -> Path:
    return by_hand.safetensors(root / f"lora-step{step:05d}.safetensors")


def pickled(root: Path, step: int) -> Path:
    return by_hand.write(root / f"iter_{step}.pkl", pickle.dumps({"weights": bytes(500), "names": ["a", "b"]}))


NAMES = {
    by_hand.hf: "hf", hf_with_deepspeed: "hf", hf_with_fsdp: "hf", hf_sharded: "hf", peft: "hf",
    accelerate: "accelerate", lightning: "lightning", distributed: "dcp", deepspeed: "deepspeed",
    megatron: "megatron", torchtune: "torchtune", orbax: "orbax", fairseq: "fairseq",
    ultralytics: "ultralytics", step_directory: "files", torch_file: "files", tensors_file: "files",
    pickled: "files",
}  # fmt: skip


@pytest.mark.parametrize("make", NAMES, ids=lambda make: make.__name__)
def test_the_newest_complete_one_is_picked_whatever_is_lost(tmp_path: Path, make: Callable[..., Path]) -> None:
    elder, newest = make(tmp_path, 9), make(tmp_path, 10)
    checkpoint = newest_complete(tmp_path).checkpoint
    assert checkpoint is not None
    assert (checkpoint.path, checkpoint.layout, checkpoint.step) == (str(newest), NAMES[make], 10)
    assert damage_everything(tmp_path, newest, elder, seed=10) >= 5


@pytest.mark.parametrize("make", NAMES, ids=lambda make: make.__name__)
def test_a_save_under_way_is_not_picked(tmp_path: Path, make: Callable[..., Path]) -> None:
    elder, newest = make(tmp_path, 9), make(tmp_path, 10)
    if newest.is_dir():
        by_hand.write(newest / "model.safetensors.tmp", "half")
    else:
        newest.rename(newest.with_name(f"{newest.name}.tmp"))
    assert picked(tmp_path) == str(elder)


def test_an_empty_checkpoint_directory_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "step_10").mkdir()
    assert [verdict.reason for verdict in all_checkpoints(tmp_path)] == ["it is empty"]


def test_tensorflow_bundles(tmp_path: Path) -> None:
    elder, newest = by_hand.tensorflow(tmp_path, "ckpt-9"), by_hand.tensorflow(tmp_path, "ckpt-10")
    assert picked(tmp_path) == str(newest)
    assert newest_complete(tmp_path).checkpoint.layout == "tensorflow"  # type: ignore[union-attr]
    for path in tmp_path.glob("ckpt-10.*"):
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            assert picked(tmp_path) == str(elder), (path.name, length)
        path.write_bytes(whole)


def verdict_reason(root: Path) -> str | None:
    (verdict,) = all_checkpoints(root)
    return verdict.reason


def test_hf_sentinel_of_a_just_in_time_save(tmp_path: Path) -> None:
    by_hand.write(by_hand.hf(tmp_path, 10) / "checkpoint-is-incomplete.txt", "saving")
    assert "still there" in str(verdict_reason(tmp_path))


@pytest.mark.parametrize(
    ("state", "word"),
    [('{"global_step": 9}', "not 10"), ("{}", "no global_step"), ('{"global_step": 10', "cut off")],
)
def test_hf_trainer_state_must_agree_with_the_name(tmp_path: Path, state: str, word: str) -> None:
    by_hand.write(by_hand.hf(tmp_path, 10) / "trainer_state.json", state)
    assert word in str(verdict_reason(tmp_path))


@pytest.mark.parametrize("lost", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors"])
def test_hf_needs_its_training_state_unless_it_saves_the_model_only(tmp_path: Path, lost: str) -> None:
    folder = by_hand.hf(tmp_path, 10)
    (folder / lost).unlink()
    assert verdict_reason(tmp_path) is not None
    by_hand.torch_zip(folder / "training_args.bin", {"save_only_model": True})
    assert (verdict_reason(tmp_path) is None) == (lost != "model.safetensors")


def test_deepspeed_latest_names_the_tag_that_counts(tmp_path: Path) -> None:
    deepspeed(tmp_path, 9)
    deepspeed(tmp_path, 10)
    by_hand.write(tmp_path / "latest", "global_step9")
    assert picked(tmp_path) == str(tmp_path / "global_step9")
    by_hand.write(tmp_path / "latest", "")
    assert picked(tmp_path) is None


def test_deepspeed_tags_without_a_number_take_the_step_from_inside(tmp_path: Path) -> None:
    deepspeed(tmp_path, 700).rename(tmp_path / "final")
    by_hand.write(tmp_path / "latest", "final")
    assert newest_complete(tmp_path).checkpoint.step == 700  # type: ignore[union-attr]


def test_deepspeed_the_last_rank_is_missed_in_a_first_checkpoint_too(tmp_path: Path) -> None:
    (deepspeed(tmp_path, 10) / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert verdict_reason(tmp_path) == "zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"


def test_megatron_counts_up_to_its_tracker(tmp_path: Path) -> None:
    megatron(tmp_path, 9)
    megatron(tmp_path, 10)
    by_hand.write(tmp_path / "latest_checkpointed_iteration.txt", "9")
    assert picked(tmp_path) == str(tmp_path / "iter_0000009")


def test_torchtune_an_epoch_whose_recipe_state_was_not_written_yet(tmp_path: Path) -> None:
    torchtune(tmp_path, 9)
    recipe = (tmp_path / "recipe_state" / "recipe_state.pt").read_bytes()
    torchtune(tmp_path, 10)
    by_hand.write(tmp_path / "recipe_state" / "recipe_state.pt", recipe)
    assert picked(tmp_path) == str(tmp_path / "epoch_9")


def test_orbax_temporary_names_and_uncommitted_saves(tmp_path: Path) -> None:
    orbax(tmp_path, 9)
    orbax(tmp_path, 10).rename(tmp_path / "10.orbax-checkpoint-tmp-1718000000000000")
    assert picked(tmp_path) == str(tmp_path / "9")
    by_hand.write(orbax(tmp_path, 11) / "_CHECKPOINT_METADATA", '{"commit_timestamp_nsecs": null}')
    assert picked(tmp_path) == str(tmp_path / "9")


def test_ultralytics_last_is_resumed_until_the_run_has_ended(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    by_hand.torch_zip(weights / "best.pt", {"epoch": 3, "optimizer": {}})
    last = by_hand.torch_zip(weights / "last.pt", {"epoch": 7, "optimizer": {}})
    assert newest_complete(tmp_path).checkpoint.step == 7  # type: ignore[union-attr]
    by_hand.torch_zip(last, {"epoch": -1, "optimizer": None})
    assert newest_complete(tmp_path).checkpoint.step == 3  # type: ignore[union-attr]
    assert "it cannot be resumed" in newest_complete(tmp_path).skipped[0].reason


def test_fairseq_last_and_epochs_are_ordered_by_their_updates(tmp_path: Path) -> None:
    def saved(name: str, updates: int) -> Path:
        return by_hand.torch_zip(tmp_path / name, {"optimizer_history": [{"num_updates": updates}]})

    saved("checkpoint3.pt", 3000)
    saved("checkpoint_3_2500.pt", 2500)
    last = saved("checkpoint_last.pt", 3100)
    assert picked(tmp_path) == str(last)
    last.unlink()
    assert picked(tmp_path) == str(tmp_path / "checkpoint3.pt")


def test_lightning_last_takes_its_step_from_inside(tmp_path: Path) -> None:
    by_hand.torch_zip(tmp_path / "epoch=2-step=900.ckpt", {"global_step": 900})
    last = by_hand.torch_zip(tmp_path / "last.ckpt", {"global_step": 950})
    by_hand.torch_zip(tmp_path / "hpc_ckpt_3.ckpt", {"global_step": 940})
    by_hand.torch_zip(tmp_path / "epoch=1-val_loss=0.25.ckpt", {"global_step": 600})
    assert [verdict.step for verdict in all_checkpoints(tmp_path)] == [600, 900, 940, 950]
    assert picked(tmp_path) == str(last)


def test_accelerate_under_the_name_of_the_diffusers_examples(tmp_path: Path) -> None:
    accelerate(tmp_path, 500).rename(tmp_path / "checkpoint-500")
    assert newest_complete(tmp_path).checkpoint.layout == "accelerate"  # type: ignore[union-attr]


def test_model_and_optimizer_files_of_one_step_belong_together(tmp_path: Path) -> None:
    for step in (9, 10):
        by_hand.torch_zip(tmp_path / f"model_{step}.pt")
        by_hand.torch_zip(tmp_path / f"optimizer_{step}.pt")
    assert picked(tmp_path) == str(tmp_path / "model_10.pt")
    (tmp_path / "optimizer_10.pt").unlink()
    assert picked(tmp_path) == str(tmp_path / "model_9.pt")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("step_9000.pt", "step_10000.pt"),
        ("model-0999.pth", "model-1000.pth"),
        ("ckpt_iter_99.pth.tar", "ckpt_iter_100.pth.tar"),
        ("epoch_9.pt", "epoch_10.pt"),
        ("epoch=9-step=99.pt", "epoch=3-step=100.pt"),
        ("model009000.pt", "model010000.pt"),
        ("epoch_99.pt", "step_3.pt"),
    ],
)
def test_numbers_in_file_names(tmp_path: Path, older: str, newer: str) -> None:
    by_hand.torch_zip(tmp_path / older)
    by_hand.torch_zip(tmp_path / newer)
    assert picked(tmp_path) == str(tmp_path / newer)


def test_cached_samples_with_a_number_do_not_outrank_a_checkpoint(tmp_path: Path) -> None:
    by_hand.torch_zip(tmp_path / "cache" / "latent_99999.pt")
    by_hand.torch_zip(tmp_path / "99999.pt")
    assert picked(tmp_path / "cache") == str(tmp_path / "cache" / "latent_99999.pt")
    epoch = by_hand.torch_zip(tmp_path / "epoch_1.pt")
    assert picked(tmp_path) == str(epoch)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "notes-10.txt", "run_3/data.csv"])
def test_what_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    by_hand.write(tmp_path / name, "x")
    assert all_checkpoints(tmp_path) == []


class Evil:
    """Unpickled, it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_no_pickle_is_ever_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    evil = {"global_step": 10, "x": Evil(witness), "save_only_model": False}
    by_hand.torch_zip(tmp_path / "last.ckpt", evil)
    by_hand.torch_zip(by_hand.hf(tmp_path, 9) / "training_args.bin", evil)
    by_hand.write(by_hand.dcp(tmp_path / "step_8") / ".metadata", pickle.dumps(evil))
    by_hand.write(tmp_path / "iter_7.pkl", pickle.dumps(evil))
    assert picked(tmp_path) == str(tmp_path / "last.ckpt")
    assert len(all_checkpoints(tmp_path)) == 4
    assert not witness.exists()


@pytest.mark.parametrize(
    "bomb", [b"\x80\x02]r\xff\xff\xff\x7f.", b"\x80\x02\x8e" + b"\xff" * 8, b"\x80\x02" + b"(" * 99]
)
def test_pickles_made_to_exhaust_memory_are_refused(tmp_path: Path, bomb: bytes) -> None:
    by_hand.write(tmp_path / "step_10.pkl", bomb)
    assert picked(tmp_path) is None


def test_a_zip_with_bytes_missing_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = by_hand.torch_zip(tmp_path / "step_10.pt")
    whole = path.read_bytes()
    by_hand.write(path, whole[:150] + whole[160:])
    assert picked(tmp_path) is None


def test_a_bin_file_of_an_unknown_format_does_not_spoil_a_checkpoint(tmp_path: Path) -> None:
    folder = by_hand.hf(tmp_path, 10)
    by_hand.write(folder / "vocabulary.bin", b"\x01\x02 some words")
    assert picked(tmp_path) == str(folder)
    by_hand.write(folder / "vocabulary.bin", bytes(20))
    assert picked(tmp_path) is None


def test_a_file_full_of_zeros_after_a_power_loss_is_refused(tmp_path: Path) -> None:
    for name in ("step_10.pt", "step_11.safetensors", "step_12.npz"):
        by_hand.write(tmp_path / name, bytes(500))
    assert picked(tmp_path) is None


def test_zstd_frames_are_walked_without_unpacking() -> None:
    # A frame of one raw block "hello", its content size told in the header.
    frame = b"\x28\xb5\x2f\xfd\x20\x05" + (5 << 3 | 1).to_bytes(3, "little") + b"hello"
    assert zstd.frame_fault(frame) is None
    assert zstd.frame_fault(frame + frame) is None
    assert all(zstd.frame_fault(frame[:length]) for length in range(len(frame)))
    if (unpacked := zstd.decompress(frame)) is not None:
        assert unpacked == b"hello"


@pytest.mark.parametrize("make", [*NAMES, by_hand.tensorflow], ids=lambda make: make.__name__)
def test_damaged_bytes_never_raise(tmp_path: Path, make: Callable[..., Path]) -> None:
    chance = random.Random(11)
    newest = make(tmp_path, "ckpt-10" if make is by_hand.tensorflow else 10)
    for path in sorted(file for file in tmp_path.rglob("*") if file.is_file()):
        whole = path.read_bytes()
        for _ in range(30):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            path.write_bytes(damaged)
            assert all(verdict.path.startswith(str(tmp_path)) for verdict in all_checkpoints(tmp_path))
        path.write_bytes(whole)
    assert picked(tmp_path) == str(newest)


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    elder = deepspeed(tmp_path, 9)
    os.mkfifo(tmp_path / "step_10.pt")
    assert picked(tmp_path) == str(elder)
    (tmp_path / "latest").unlink()
    os.mkfifo(tmp_path / "latest")
    assert picked(tmp_path) is None


def test_a_pickle_too_long_to_walk_is_judged_by_its_end(tmp_path: Path) -> None:
    path = by_hand.write(tmp_path / "step_10.pkl", pickle.dumps(list(range(pickled_format.MAX_OPCODES + 1))))
    assert picked(tmp_path) == str(path)
    by_hand.write(path, path.read_bytes()[:-1])
    assert picked(tmp_path) is None


def test_a_directory_that_is_overwritten_in_place_counts_without_a_number(tmp_path: Path) -> None:
    by_hand.dcp(tmp_path)
    checkpoint = newest_complete(tmp_path).checkpoint
    assert checkpoint is not None
    assert (checkpoint.path, checkpoint.step) == (str(tmp_path), 0)
    (tmp_path / ".metadata").unlink()
    assert picked(tmp_path) is None


def test_an_own_training_loop_may_use_the_name_of_trainer(tmp_path: Path) -> None:
    by_hand.torch_zip(tmp_path / "checkpoint-10" / "model.pt")
    assert newest_complete(tmp_path).checkpoint.layout == "files"  # type: ignore[union-attr]
