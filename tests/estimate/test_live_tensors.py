"""The formulas of estimate/layers.py and loss.py against the live tensors of real training steps on the CPU."""

import weakref
from typing import Any

import pytest

from gpuqueue.estimate.layers import layer_bytes
from gpuqueue.estimate.loss import logit_copies
from gpuqueue.estimate.run import Run
from gpuqueue.estimate.shapes import ModelShape

torch = pytest.importorskip("torch", reason="needs PyTorch, Transformers and PEFT: make test-ml")
transformers = pytest.importorskip("transformers", reason="needs Transformers: make test-ml")
peft = pytest.importorskip("peft", reason="needs PEFT: make test-ml")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

pytestmark = pytest.mark.ml

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
HIDDEN, TOKENS = 256, 512


class LiveTensors(TorchDispatchMode):  # type: ignore[misc]
    """Sums the bytes of every storage that an operation made and nothing has freed; parameters apart."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.kept = [each.untyped_storage() for each in (*model.parameters(), *model.buffers())]
        self.known = {id(storage) for storage in self.kept}
        self.now = self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and id(tensor.untyped_storage()) not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(id(storage))
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, id(storage), storage.nbytes())
        return result

    def _free(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.now -= size


def step(run: Run) -> tuple[float, float]:
    """(kept after the forward pass, peak of the backward pass) in bytes a token."""
    shape = run.shape
    config = transformers.AutoConfig.for_model(
        "llama",
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        use_cache=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=run.attention)
    model = model.to(torch.bfloat16)
    if run.method == "lora":
        if run.checkpointing:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=run.rank, target_modules=list(run.targets)))
    if run.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.train()
    tokens = torch.zeros(run.batch, run.seq_len, dtype=torch.long)
    with LiveTensors(model) as live:
        with torch.autocast("cpu", torch.bfloat16, enabled=run.autocast):
            loss = model(input_ids=tokens, labels=tokens).loss
        kept = live.now
        live.peak = 0
        loss.backward()
    return kept / run.tokens, live.peak / run.tokens


def a_run(layers: int = 2, vocab: int = 512, ffn: int = 896, **fields: Any) -> Run:
    shape = ModelShape("tiny", HIDDEN, layers, heads=4, kv_heads=4, head_dim=64, ffn=ffn, vocab=vocab)
    return Run(shape, batch=1, seq_len=TOKENS, rank=4, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "lora", "targets": ("q_proj", "v_proj")},
        {"method": "lora", "targets": ATTENTION},
        {"method": "lora", "targets": ALL},
        {"method": "lora", "targets": ATTENTION, "autocast": False},
        {"method": "full", "autocast": False},
        {"method": "lora", "targets": ATTENTION, "attention": "eager"},
    ],
)
def test_a_layer_keeps_what_the_formula_says(fields: dict[str, Any]) -> None:
    two, three = (step(a_run(layers, checkpointing=False, **fields))[0] for layers in (2, 3))
    assert three - two == pytest.approx(layer_bytes(a_run(checkpointing=False, **fields)).saved, rel=0.03)


def test_checkpointing_stores_one_hidden_state_a_layer() -> None:
    two, three = (step(a_run(layers, targets=ATTENTION))[0] for layers in (2, 3))
    assert three - two == pytest.approx(layer_bytes(a_run(targets=ATTENTION)).store, rel=0.01)


@pytest.mark.parametrize("targets", [ATTENTION, ALL])
def test_one_layers_backward_pass_peaks_where_the_formula_says(targets: tuple[str, ...]) -> None:
    """With a small vocabulary the last layer sets the peak, beside the stored inputs of both."""
    run = a_run(targets=targets, vocab=64, ffn=2048)
    layer = layer_bytes(run)
    assert step(run)[1] == pytest.approx(2 * layer.store + layer.saved + layer.work, rel=0.04)


@pytest.mark.parametrize("fields", [{"method": "lora", "targets": ATTENTION}, {"method": "full", "autocast": False}])
def test_the_loss_keeps_as_many_bytes_a_logit_as_the_formula_says(fields: dict[str, Any]) -> None:
    """The peak lies before the head runs back, so its own gradient is not in it."""
    small, large = (step(a_run(vocab=size, **fields))[1] for size in (8192, 16384))
    assert (large - small) / 8192 == pytest.approx(logit_copies(a_run(**fields)), rel=0.02)
