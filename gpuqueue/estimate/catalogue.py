"""Built-in model shapes, found by the name that people write, repository and suffixes aside."""

from collections.abc import Callable

from gpuqueue.estimate.models import TABLE
from gpuqueue.estimate.shapes import ModelShape
from gpuqueue.estimate.stored import Fields, by_name

# Models that are another one's shape with other weights.
SAME_SHAPE = {
    "llama-3.3-70b": "llama-3.1-70b",
    "qwq-32b": "qwen2.5-32b",
    "zephyr-7b": "mistral-7b-v0.1",
    "mistral-7b": "mistral-7b-v0.1",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
    "vicuna-7b": "llama-2-7b",
    "vicuna-13b": "llama-2-13b",
    "phi-3.5-mini": "phi-3-mini",
    "yi-1.5-6b": "yi-6b",
    "yi-1.5-9b": "yi-9b",
    "yi-1.5-34b": "yi-34b",
    "devstral-small": "mistral-small-24b",
    "magistral-small": "mistral-small-24b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-small-3.1-24b": "mistral-small-24b",
    "mistral-small-3.2-24b": "mistral-small-24b",
    "deepseek-r1": "deepseek-v3",
    "r1-distill-llama-8b": "deepseek-r1-distill-llama-8b",
    "r1-distill-llama-70b": "deepseek-r1-distill-llama-70b",
    "bloomz-560m": "bloom-560m",
    "tiny-llama": "tinyllama-1.1b",
    "tiny-llama-1.1b": "tinyllama-1.1b",
    "tinyllama": "tinyllama-1.1b",
    "tinyllama-1.1b-intermediate-step-1431k-3t": "tinyllama-1.1b",
    "qwen-1-8b": "qwen-1.8b",
}
# Words of a name that do not change the shape.
NOISE = frozenset(
    {
        *(
            "instruct",
            "chat",
            "hf",
            "it",
            "base",
            "pt",
            "text",
            "thinking",
            "reasoning",
            "coder",
            "math",
            "meta",
        ),
        *("gptq", "awq", "fp8", "mxfp4", "bf16", "fp16", "int4", "int8", "bnb", "4bit", "8bit", "unsloth", "gguf"),
        *("4k", "8k", "128k", "dynamic", "block", "nvfp4", "exl2", "mlx", "quantized", "w4a16", "w8a8"),
        *("dpo", "sft", "alpha", "beta", "preview", "2407", "2410", "2501", "2503", "2506", "2507"),
    }
)


class UnknownModelError(ValueError):
    """No built-in shape has this name. `near` are names that look like it."""

    def __init__(self, name: str, near: list[str]) -> None:
        self.name, self.near = name, near
        like = f"; did you mean {', '.join(near)}?" if near else "."
        super().__init__(f"no built-in shape for model {name!r}{like} A directory with its config.json works too")


def find(name: str) -> ModelShape:
    """The shape of the model called `name`, as a repository id or alone. Raises UnknownModelError."""
    table = _rows()
    for candidate in _candidates(name.strip().rsplit("/", 1)[-1].lower()):
        row = table.get(SAME_SHAPE.get(candidate, candidate))
        if row is not None:
            return _shape(row)
    import difflib  # only on the way to an error: it costs more than the whole estimate

    names = {key: row[0] for key, row in table.items()}
    near = difflib.get_close_matches(name.rsplit("/", 1)[-1].lower(), names, n=3, cutoff=0.5)
    raise UnknownModelError(name, [names[key] for key in near])


def find_stored(name: str, settled: bool = False) -> tuple[ModelShape, Fields]:
    """The shape of the model called `name`, and Run fields of the format in which it is stored as far as that is no
    plain one, unless that is `settled` already. Raises UnknownModelError, UnknownFormatError."""
    shape = find(name)
    if settled:
        return shape, {}
    fields, told = by_name(name, shape.name)
    return shape._replace(remarks=(*shape.remarks, *told)), fields


def names() -> list[str]:
    """Every built-in model."""
    return [row[0] for row in _rows().values()]


def _rows() -> dict[str, list[str]]:
    return {line.split(",", 1)[0].lower(): line.split(",") for line in TABLE.splitlines()}


def _candidates(name: str) -> list[str]:
    """The name as written, then without the words that do not matter, then without a version too."""
    words = name.replace("_", "-").split("-")
    found = [name]
    while len(words) > 1 and words[-1] in NOISE:
        words.pop()
        found.append("-".join(words))
    plain = [word for word in words if word not in NOISE]
    unversioned = [word for word in plain if not (word[:1] == "v" and word[1:2].isdigit())]
    return [*found, "-".join(words), "-".join(plain), "-".join(unversioned)]


def _shape(row: list[str]) -> ModelShape:
    hidden, layers, heads, kv_heads, head_dim, ffn, vocab, params = (int(value) for value in row[1:9])
    fields: dict[str, int | bool] = {"exact_params": params}
    for extra in row[9].split():
        key, _, value = extra.partition("=")
        fields.update(EXTRAS[key](value))
    return ModelShape(row[0], hidden, layers, heads, kv_heads, head_dim, ffn, vocab, **fields)  # type: ignore[arg-type]


def _pair(*keys: str) -> Callable[[str], dict[str, int | bool]]:
    return lambda value: dict(zip(keys, (int(part) for part in value.split(":")), strict=True))


EXTRAS: dict[str, Callable[[str], dict[str, int | bool]]] = {
    "tied": lambda _: {"tied": True},
    "plain_mlp": lambda _: {"gated_mlp": False},
    "layer_norm": lambda _: {"layer_norm": True},
    "qkv_bias": lambda _: {"qkv_bias": True},
    "biases": lambda _: {"qkv_bias": True, "linear_bias": True},
    "qk_norm": lambda _: {"qk_norm": True},
    "parallel": lambda _: {"parallel": True},
    "bigcode": lambda _: {"bigcode": True},
    "soft_cap": lambda _: {"soft_cap": True},
    "norms": _pair("norms"),
    "max": _pair("max_positions"),
    "experts": _pair("experts", "experts_per_token"),
    "shared": _pair("shared_ffn"),
    "dense": _pair("dense_layers", "dense_ffn"),
    "mla": _pair("kv_lora_rank", "rope_dim", "v_head_dim", "q_lora_rank"),
    "window": _pair("sliding_window", "sliding_layers"),
}
