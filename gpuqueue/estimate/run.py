"""One run to be estimated: the model's shape and every choice that changes how much memory it takes."""

from typing import NamedTuple

from gpuqueue.estimate.allocator import BARE_CONTEXT_MIB, KERNELS_MIB
from gpuqueue.estimate.shapes import ModelShape

METHODS = ("full", "lora", "qlora", "inference", "vllm")
PLAIN = ("fp32", "bf16", "fp16")
FORMATS = (*PLAIN, "int8", "nf4", "nf4-dq", "gptq4", "gptq8", "awq", "fp8", "mxfp4", "gguf")
OPTIMIZERS = (
    "adamw",
    "adamw_fused",
    "adamw_8bit",
    "paged_adamw",
    "paged_adamw_8bit",
    "adafactor",
    "sgd",
    "sgd_momentum",
    "lion",
    "lion_8bit",
    "muon",
)
ATTENTIONS = ("flash", "sdpa", "eager")
LOSSES = ("eager", "fused", "chunked", "linear")
TRAINERS = ("sft", "dpo", "grpo", "orpo", "kto", "reward")
STACKS = ("hf", "litgpt", "torchtune")
ADAPTERS = ("lora", "llama_adapter", "llama_adapter_v2")
KBIT = ("none", "peft", "trl")
CURRENT_TRANSFORMERS = (5, 0)
CONTEXT_MIB = BARE_CONTEXT_MIB + KERNELS_MIB  # where no node has been measured
CONTEXT_SOURCES = ("published", "measured", "given")
WEIGHTS_SOURCES = ("given", "stored", "assumed")
LEAST = {  # the smallest number that makes sense
    1: ("batch", "seq_len", "rank", "ranks", "grad_accumulation", "sequences"),
    0: ("eval_batch", "eval_rows", "completion_len", "steps_per_generation", "prompt_len", "new_tokens", "context_mib"),
}
MOST = 1 << 31
VLLM_DEFAULT_SHARE = 0.9


class Run(NamedTuple):
    """A run whose memory is asked for. Defaults are what Transformers, PEFT and TRL do unasked."""

    shape: ModelShape
    method: str = "lora"
    weights: str = "bf16"  # how the base model is stored, see FORMATS
    weights_source: str = "given"  # stored: as the model's files or its name say; assumed: nothing says
    compute: str = "bf16"  # fp32 | bf16 | fp16
    autocast: bool = True  # Trainer's bf16=True / fp16=True; False: everything in the weights' type
    adapter: str = "lora"  # what lora and qlora train, see ADAPTERS
    rank: int = 16
    targets: tuple[str, ...] = ("all-linear",)
    modules_to_save: tuple[str, ...] = ()
    adapter_bytes: int = 4  # PEFT keeps adapters in fp32 (autocast_adapter_dtype)
    dropout: bool = False
    kbit: str = "peft"  # who prepares a quantised model: prepare_model_for_kbit_training, TRL, nobody
    optimizer: str = "adamw"
    optimizer_in_backward: bool = False
    state_bytes: int = 0  # a number of the Adam kind is kept in: 0 means as wide as the trained weights
    batch: int = 1
    seq_len: int = 2048
    grad_accumulation: int = 1
    step_before: float = 0.7  # its length relative to the longest; litgpt's 4-bit linears still hold it
    steps: int = 0  # 1: a single step, whose allocator cache no earlier step has cut up; 0: many
    packed: bool = False
    checkpointing: bool = True
    offload_activations: bool = False
    attention: str = "sdpa"
    expand_kv: bool = False  # keys and values repeated to every query head even where SDPA need not
    loss: str = "eager"
    fused_norms: bool = False  # Liger's or similar RMSNorm kernels, which keep no fp32 copy
    fused_mlp: bool = False  # Liger's SwiGLU, which computes the activation again in the backward pass
    compiled: bool = False
    holds_logits: bool = False  # the training loop keeps the model's output while it runs backward
    stack: str = "hf"
    transformers: tuple[int, int] = CURRENT_TRANSFORMERS
    ranks: int = 1
    zero: int = 0  # 1: optimizer, 2: and gradients, 3 or FSDP full shard: and weights; over `ranks`
    offload_optimizer: bool = False
    offload_weights: bool = False
    eval_batch: int = 0
    eval_keeps_logits: bool = False
    eval_rows: int = 0  # rows whose logits stay on the card when nothing moves them off
    trainer: str = "sft"
    value_head: bool = False  # reward: beside a language model's head, whose logits are computed too (LLaMA-Factory)
    completion_len: int = 0  # GRPO: tokens that are generated for each prompt
    steps_per_generation: int = 0  # GRPO: batches that are generated at once; 0: all of an optimizer step
    vllm_sleeps: bool = False  # GRPO with vLLM on the card: it gives its share back while the model learns
    reference_model: bool | None = None  # a frozen copy to compare with; None: for DPO and KTO (GRPO: beta above 0)
    precomputed_reference: bool = False
    prompt_len: int = 0  # inference
    new_tokens: int = 0
    sequences: int = 1
    kv_bytes: int = 2
    prefill: bool = True  # False: the prompt goes through in pieces, its working set does not count
    gpu_memory_utilization: float = 0.0  # vLLM: its share of the card; 0: its default, and in GRPO no vLLM on the card
    card_mib: int = 0  # the card that a share is taken of; 0: vLLM is asked for what it needs
    group_size: int = 128  # weights that share a scale in GPTQ and AWQ files; 0: one scale a column
    weight_bytes: int = 0  # exact, from safetensors or GGUF headers
    workspace_mib: int = 9  # cuBLAS workspace a thread: 8.125 MiB, 32 MiB on Hopper and later
    context_mib: int = CONTEXT_MIB  # with the kernels that the framework loads into it
    context_source: str = "published"  # measured: the bare context, by gpuqueued init on this node
    expandable_segments: bool = False

    def check(self) -> None:
        """Raises ValueError where a choice is unknown or a number makes no sense; the text names it."""
        for field, allowed in (
            ("method", METHODS),
            ("weights", FORMATS),
            ("compute", ("fp32", "bf16", "fp16")),
            ("optimizer", OPTIMIZERS),
            ("attention", ATTENTIONS),
            ("loss", LOSSES),
            ("trainer", TRAINERS),
            ("stack", STACKS),
            ("kbit", KBIT),
            ("adapter", ADAPTERS),
            ("context_source", CONTEXT_SOURCES),
            ("weights_source", WEIGHTS_SOURCES),
        ):
            value = getattr(self, field)
            if value not in allowed:
                raise ValueError(f"{field} {value!r} is not one of {', '.join(allowed)}")
        for least, fields in LEAST.items():
            for field in fields:
                if not least <= getattr(self, field) <= MOST:
                    raise ValueError(f"{field} must be at least {least} and at most {MOST}")
        if not 0 <= self.gpu_memory_utilization <= 1:
            raise ValueError("gpu_memory_utilization is a share of the card, above 0 and at most 1")
        if self.zero not in (0, 1, 2, 3):
            raise ValueError(f"zero {self.zero!r} is no stage of ZeRO: 0 to 3")
        self._check_weights()

    def _check_weights(self) -> None:
        if self.weights == "gguf" and (self.trains or not self.weight_bytes):
            raise ValueError("weights 'gguf' are those of a .gguf file, which is for inference: name the file")
        if self.weights == "mxfp4" and self.trains:
            raise ValueError("weights 'mxfp4' cannot be trained while they are packed: use bf16")
        if self.method == "full" and self.weights not in PLAIN:
            raise ValueError(f"method 'full' cannot train weights in {self.weights}: use qlora, or bf16 weights")
        if self.method == "qlora" and self.weights in PLAIN:
            raise ValueError(f"method 'qlora' trains on quantised weights, not on {self.weights}: use nf4, or lora")

    @property
    def trains(self) -> bool:
        return self.method in ("full", "lora", "qlora")

    @property
    def compute_bytes(self) -> int:
        return 4 if self.compute == "fp32" else 2

    @property
    def quantised(self) -> bool:
        return self.weights not in ("fp32", "bf16", "fp16")

    @property
    def sequences_at_once(self) -> int:
        """Sequences in one forward pass: preference trainers put both answers through together."""
        return self.batch * (2 if self.trainer in ("dpo", "orpo", "kto", "reward") else 1)

    @property
    def tokens(self) -> int:
        """Tokens in one forward pass, padding counted, since padding takes the same memory."""
        return self.sequences_at_once * (self.seq_len + self.completion_len)

    @property
    def loss_tokens(self) -> int:
        """Tokens whose logits are computed: GRPO asks for those of the completions only."""
        if self.trainer == "grpo" and self.completion_len:
            return self.batch * self.completion_len
        return self.tokens

    @property
    def keeps_reference(self) -> bool:
        """Whether a frozen copy lies beside the trained model; an adapter is switched off instead."""
        compares = self.trainer in ("dpo", "kto") if self.reference_model is None else self.reference_model
        return compares and self.method == "full" and not self.precomputed_reference

    @property
    def rollout_tokens(self) -> int:
        """GRPO: tokens whose cache is alive while completions are written, those of several batches at once."""
        return self.batch * (self.steps_per_generation or self.grad_accumulation) * (self.seq_len + self.completion_len)

    @property
    def vllm_share(self) -> float:
        """The share of the card that vLLM fills in this process, serving or beside GRPO; 0: there is no vLLM."""
        if self.method == "vllm":
            return self.gpu_memory_utilization or VLLM_DEFAULT_SHARE
        return self.gpu_memory_utilization if self.trainer == "grpo" and self.trains else 0.0

    @property
    def bitsandbytes(self) -> bool:
        return self.method == "qlora" and self.weights in ("nf4", "nf4-dq", "int8")

    @property
    def kbit_fp32_embeddings(self) -> bool:
        """PEFT's prepare_model_for_kbit_training turns what is not quantised into fp32; TRL turns
        embeddings and head back into bf16. AutoGPTQ models are prepared without that cast."""
        return self.bitsandbytes and self.kbit == "peft"

    @property
    def kbit_fp32_norms(self) -> bool:
        return self.bitsandbytes and self.kbit != "none"

    @property
    def stream_bytes(self) -> int:
        """Bytes of an element of the residual stream.

        A bitsandbytes linear answers in the type it is asked in, so fp32 norms make the stream fp32:
        those of a k-bit preparation, and every LayerNorm under autocast.
        """
        asked_in_fp32 = self.kbit_fp32_norms or (self.bitsandbytes and self.autocast and self.shape.layer_norm)
        return 4 if self.weights == "fp32" or asked_in_fp32 else self.compute_bytes
