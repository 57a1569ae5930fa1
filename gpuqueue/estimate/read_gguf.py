"""Reads a GGUF file's header: the model's shape and the exact bytes of its tensors, nothing else of it."""

import struct
from pathlib import Path
from typing import Any, BinaryIO

from gpuqueue.estimate.families import no_decoder
from gpuqueue.estimate.model_files import UnreadableModelError, check_not_pointer
from gpuqueue.estimate.shapes import ModelShape

MAGIC = b"GGUF"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST = 2**31 - 1
LONGEST = 1 << 24  # a string or array beyond this is damage, not data

# ggml type -> (weights a block, bytes a block), ggml.h
TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
}  # fmt: skip


def read_gguf(path: Path) -> tuple[ModelShape, dict[str, Any]]:
    """The shape of the model in this file, and the Run fields weights and weight_bytes."""
    try:
        with path.open("rb") as file:
            facts, tensors = _header(file, path)
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableModelError(f"{path}: its GGUF header is cut off or damaged") from error
    size, params = 0, 0
    for name, elements, kind in tensors:
        if kind not in TYPES:
            raise UnreadableModelError(f"{path}: tensor {name} has the unknown type {kind}")
        weights, length = TYPES[kind]
        size, params = size + elements // weights * length, params + elements
    return _shape(facts, params, {name: elements for name, elements, _ in tensors}, path), {
        "weights": "gguf",
        "weight_bytes": size,
    }


def _header(file: BinaryIO, path: Path) -> tuple[dict[str, Any], list[tuple[str, int, int]]]:
    beginning = file.read(4)
    check_not_pointer(path, beginning + file.read(60) if beginning == b"vers" else beginning)
    if beginning != MAGIC:
        raise UnreadableModelError(f"{path}: not a GGUF file")
    version, tensor_count, fact_count = struct.unpack("<IQQ", file.read(20))
    if version not in (2, 3):
        raise UnreadableModelError(f"{path}: GGUF version {version} is not read, only 2 and 3")
    facts = {}
    for _ in range(fact_count):
        key = _string(file)
        facts[key] = _value(file, *struct.unpack("<I", file.read(4)))
    tensors = []
    for _ in range(tensor_count):
        name = _string(file)
        (dimensions,) = struct.unpack("<I", file.read(4))
        elements = 1
        for size in struct.unpack(f"<{min(dimensions, 8)}Q", file.read(8 * min(dimensions, 8))):
            elements *= size
        kind, _offset = struct.unpack("<IQ", file.read(12))
        tensors.append((name, elements, kind))
    return facts, tensors


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > LONGEST:
        raise struct.error("string too long")
    data = file.read(length)
    if len(data) < length:
        raise struct.error("file ends inside a string")
    return data.decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        if count > LONGEST:
            raise struct.error("array too long")
        if inner in SCALARS:
            width = struct.calcsize("<" + SCALARS[inner])
            return list(struct.unpack(f"<{count}{SCALARS[inner]}", file.read(width * count)))
        return [_value(file, inner) for _ in range(count)]
    if kind not in SCALARS:
        raise struct.error(f"value type {kind}")
    return struct.unpack("<" + SCALARS[kind], file.read(struct.calcsize("<" + SCALARS[kind])))[0]


def _shape(facts: dict[str, Any], params: int, sizes: dict[str, int], path: Path) -> ModelShape:
    kind = str(facts.get("general.architecture", ""))
    what = no_decoder(kind, {})
    if what:
        raise UnreadableModelError(f"{path}: architecture {kind} is {what}, and only decoders are counted")

    def number(key: str, default: int | None = None) -> int:
        """One of at least 1 where there is no default; of a list, which has one a layer, the largest."""
        value, least = facts.get(f"{kind}.{key}", default), 1 if default is None else 0
        if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
            value = max(value)
        if value is None:
            raise UnreadableModelError(f"{path} does not say {kind}.{key}: is it a language model?")
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            raise UnreadableModelError(f"{path}: {kind}.{key} = {str(value)[:40]} is not what a model has")
        return value

    hidden, heads = number("embedding_length"), number("attention.head_count")
    if heads > hidden:
        raise UnreadableModelError(f"{path}: {heads} attention heads do not fit embedding_length {hidden}")
    tokens = facts.get("tokenizer.ggml.tokens")
    vocabulary = sizes.get("token_embd.weight", 0) // hidden or (len(tokens) if isinstance(tokens, list) else 0)
    experts = number("expert_count", 0)
    return ModelShape(
        name=str(facts.get("general.name", kind)),
        hidden=hidden,
        layers=number("block_count"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // heads),
        ffn=number("expert_feed_forward_length", number("feed_forward_length", 0))
        if experts
        else number("feed_forward_length"),
        vocab=vocabulary,
        tied="output.weight" not in sizes,
        gated_mlp="blk.0.ffn_gate.weight" in sizes or bool(experts),
        experts=experts,
        experts_per_token=number("expert_used_count", 0),
        sliding_window=number("attention.sliding_window", 0),
        max_positions=number("context_length", 32768),
        exact_params=params,
    )
