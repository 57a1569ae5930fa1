"""Checkpoints as the frameworks lay them out: the same names, in the same order, whole files of a few bytes.

What a framework writes last is written last here, so that a run killed while it saves leaves what a real one
leaves. The files are whole: safetensors with a header, PyTorch's zip format with a pickle that torch.load reads; only
DCP's metadata is a plain dictionary of the same fields, since its classes are torch's.
"""

import io
import json
import pickle
import re
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STEP_RECORD = "archive/extra/step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One checkpoint: files in the order of writing, then renames, then removals; paths within the directory."""

    path: str  # what one resumes from
    writes: list[tuple[str, bytes]]
    renames: tuple[tuple[str, str], ...] = ()
    removes: tuple[str, ...] = ()


def save(directory: Path, layout: str, step: int, save_s: float) -> Path:
    """Writes a checkpoint of that step, taking `save_s`; returns what one resumes from."""
    plan = LAYOUTS[layout](directory, step)
    pause_s = save_s / (2 * len(plan.writes))
    for name, content in plan.writes:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = len(content) // 2
        with path.open("wb") as file:
            file.write(content[:half])
            file.flush()
            time.sleep(pause_s)
            file.write(content[half:])
        time.sleep(pause_s)
    for old, new in plan.renames:
        (directory / old).replace(directory / new)
    for name in plan.removes:
        (directory / name).unlink()
    return directory / plan.path


def read_step(checkpoint: Path) -> int:
    """The step at which a checkpoint was saved. Raises OSError or RuntimeError as a framework would: nothing
    there, cut off."""
    state = checkpoint / "trainer_state.json"
    if state.is_file():
        return int(json.loads(state.read_text())["global_step"])
    named = re.search(r"(\d+)\D*$", checkpoint.stem if checkpoint.is_file() else checkpoint.name)
    files = [checkpoint] if checkpoint.is_file() else sorted(p for p in checkpoint.rglob("*") if p.is_file())
    if not files:
        raise FileNotFoundError(f"no checkpoint at {checkpoint}")
    recorded = [step for step in map(_recorded_step, files) if step is not None]
    if recorded:
        return recorded[0]
    if named is None:
        raise RuntimeError(f"{checkpoint} tells no step")
    return int(named[1])


def _recorded_step(path: Path) -> int | None:
    if path.suffix not in (".pt", ".pth", ".bin", ".ckpt", ".pkl"):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return int(archive.read(_STEP_RECORD))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise RuntimeError(
            "PytorchStreamReader failed reading zip archive: failed finding central directory"
        ) from error


def _torch(step: int) -> bytes:
    """A file that torch.load reads: {"global_step": step}."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"global_step": step}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr(_STEP_RECORD, str(step))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def _safetensors(step: int) -> bytes:
    """One float32 tensor of four zeros."""
    header = json.dumps(
        {
            "__metadata__": {"format": "pt", "step": str(step)},
            "model.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + bytes(16)


def _hf(_directory: Path, step: int) -> Save:
    folder = f"checkpoint-{step}"
    state = {"epoch": 0.0, "global_step": step, "log_history": [], "max_steps": 0, "best_model_checkpoint": None}
    return Save(
        path=folder,
        writes=[
            (f"{folder}/config.json", b'{"model_type": "simulated"}\n'),
            (f"{folder}/model.safetensors", _safetensors(step)),
            (f"{folder}/training_args.bin", _torch(step)),
            (f"{folder}/optimizer.pt", _torch(step)),
            (f"{folder}/scheduler.pt", _torch(step)),
            (f"{folder}/rng_state.pth", _torch(step)),
            (f"{folder}/trainer_state.json", json.dumps(state, indent=2).encode()),
        ],
    )


def _hf_jit(directory: Path, step: int) -> Save:
    plain = _hf(directory, step)
    sentinel = f"{plain.path}/checkpoint-is-incomplete.txt"
    return Save(path=plain.path, writes=[(sentinel, b"saving\n"), *plain.writes], removes=(sentinel,))


def _lightning(_directory: Path, step: int) -> Save:
    name = f"epoch=0-step={step}.ckpt"
    return Save(path=name, writes=[(name + ".part", _torch(step))], renames=((name + ".part", name),))


def _dcp(_directory: Path, step: int) -> Save:
    folder, part = f"step-{step}", _torch(step)
    where = {"relative_path": "__0_0.distcp", "offset": 0, "length": len(part)}
    return Save(
        path=folder,
        writes=[
            (f"{folder}/__0_0.distcp", part),
            (f"{folder}/.metadata.tmp", pickle.dumps({"storage_data": {"global_step": where}}, protocol=2)),
        ],
        renames=((f"{folder}/.metadata.tmp", f"{folder}/.metadata"),),
    )


def _deepspeed(_directory: Path, step: int) -> Save:
    folder = f"global_step{step}"
    return Save(
        path=folder,
        writes=[
            (f"{folder}/mp_rank_00_model_states.pt", _torch(step)),
            (f"{folder}/zero_pp_rank_0_mp_rank_00_optim_states.pt", _torch(step)),
            ("latest", folder.encode()),
        ],
    )


def _accelerate(directory: Path, step: int) -> Save:
    """Counts saves, not steps; the step is in the files."""
    there = [int(path.name.removeprefix("checkpoint_")) for path in directory.glob("checkpoints/checkpoint_[0-9]*")]
    folder = f"checkpoints/checkpoint_{max(there, default=-1) + 1}"
    return Save(
        path=folder,
        writes=[
            (f"{folder}/model.safetensors", _safetensors(step)),
            (f"{folder}/optimizer.bin", _torch(step)),
            (f"{folder}/scheduler.bin", _torch(step)),
            (f"{folder}/random_states_0.pkl", _torch(step)),
        ],
    )


def _torchtune(_directory: Path, step: int) -> Save:
    folder = f"step_{step}"
    return Save(
        path=folder,
        writes=[
            (f"{folder}/model-00001-of-00001.safetensors", _safetensors(step)),
            ("recipe_state/recipe_state.pt", _torch(step)),
        ],
    )


def _orbax(_directory: Path, step: int) -> Save:
    unfinished = f"{step}.orbax-checkpoint-tmp-1"
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f4", "order": "C"}
    array |= {"compressor": None, "filters": None, "fill_value": None}
    return Save(
        path=str(step),
        writes=[
            (f"{unfinished}/default/model.weight/.zarray", json.dumps(array).encode()),
            (f"{unfinished}/default/model.weight/0", bytes(16)),
            (f"{unfinished}/default/_METADATA", b'{"tree_metadata": {}, "use_ocdbt": false}'),
            (f"{unfinished}/_CHECKPOINT_METADATA", b'{"item_handlers": {"default": "PyTree"}}'),
        ],
        renames=((unfinished, str(step)),),
    )


def _fairseq(_directory: Path, step: int) -> Save:
    name = "checkpoint_last.pt"
    return Save(path=name, writes=[(name + ".tmp", _torch(step))], renames=((name + ".tmp", name),))


def _megatron(_directory: Path, step: int) -> Save:
    folder = f"iter_{step:07d}"
    return Save(
        path=folder,
        writes=[
            (f"{folder}/mp_rank_00/model_optim_rng.pt", _torch(step)),
            ("latest_checkpointed_iteration.txt", str(step).encode()),
        ],
    )


def _ultralytics(_directory: Path, step: int) -> Save:
    return Save(path="weights/last.pt", writes=[("weights/last.pt", _torch(step))])


def _plain(_directory: Path, step: int) -> Save:
    name = f"model_step_{step}.pt"
    return Save(path=name, writes=[(name, _torch(step))])


LAYOUTS: dict[str, Callable[[Path, int], Save]] = {
    "accelerate": _accelerate,
    "dcp": _dcp,
    "deepspeed": _deepspeed,
    "fairseq": _fairseq,
    "hf": _hf,
    "hf-jit": _hf_jit,
    "lightning": _lightning,
    "megatron": _megatron,
    "orbax": _orbax,
    "plain": _plain,
    "torchtune": _torchtune,
    "ultralytics": _ultralytics,
}
