"""The shape of a decoder model: what its tensors are and how many bytes a token leaves in its cache."""

from typing import NamedTuple

ATTENTION_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj")


class ModelShape(NamedTuple):
    """A decoder-only transformer, in the words of its config.json. Widths are elements, not bytes."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # of one expert where there are experts
    vocab: int
    tied: bool = False
    gated_mlp: bool = True
    qkv_bias: bool = False
    linear_bias: bool = False  # in the MLP and in attention's output projection
    qk_norm: bool = False
    norms: int = 2  # a layer: 4 for Gemma 2 and 3, which norm on both sides of each block
    layer_norm: bool = False  # LayerNorm with bias, as in GPT-2, Falcon, Phi; else RMSNorm
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn: int = 0  # width of the expert that every token passes
    dense_layers: int = 0  # leading layers without experts, `dense_ffn` wide
    dense_ffn: int = 0
    kv_lora_rank: int = 0  # MLA: width of the compressed cache; 0 means ordinary attention
    rope_dim: int = 0  # MLA: the part of each head that carries positions
    v_head_dim: int = 0
    q_lora_rank: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0  # how many layers look only `sliding_window` tokens back
    soft_cap: bool = False
    parallel: bool = False  # attention and MLP read the same residual stream, side by side
    bigcode: bool = False  # GPTBigCode: keeps its cache in training, shifts the logits itself
    max_positions: int = 32768
    extra_params: int = 0  # beside layers, embedding and head: a table of positions, a vision tower
    labels: int = 0  # outputs of a classifier's head, in place of one for the vocabulary; 0: a language model
    exact_params: int = 0  # from the model card or the safetensors headers; 0: count the shape
    doubt: float = 0.0  # share of an estimate by which it may be off, since the architecture is not known
    remarks: tuple[str, ...] = ()  # what its config left open, in sentences for the person who reads the estimate

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        return self.heads * (self.v_head_dim or self.head_dim)

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def embedding_params(self) -> int:
        return self.vocab * self.hidden

    @property
    def head_outputs(self) -> int:
        """Numbers that come out for a token: logits of the vocabulary, or of labels."""
        return self.labels or self.vocab

    @property
    def head_params(self) -> int:
        """Parameters of an output head of its own; 0 where it is the embedding once more."""
        return 0 if self.tied and not self.labels else self.head_outputs * self.hidden

    def as_classifier(self, labels: int) -> "ModelShape":
        """The same layers under a head of so many labels (AutoModelForSequenceClassification)."""
        found = self._replace(labels=labels)
        if not self.exact_params:
            return found
        return found._replace(exact_params=self.exact_params - self.head_params + found.head_params)

    def attention_linears(self) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of the projections of one layer's attention."""
        if not self.kv_lora_rank:
            return {
                "q_proj": (self.hidden, self.q_width),
                "k_proj": (self.hidden, self.kv_width),
                "v_proj": (self.hidden, self.kv_width),
                "o_proj": (self.q_width, self.hidden),
            }
        up_width = self.heads * (self.head_dim - self.rope_dim) + self.value_width
        query: dict[str, tuple[int, int]] = {"q_proj": (self.hidden, self.q_width)}
        if self.q_lora_rank:
            query = {
                "q_a_proj": (self.hidden, self.q_lora_rank),
                "q_b_proj": (self.q_lora_rank, self.q_width),
            }
        return query | {
            "kv_a_proj_with_mqa": (self.hidden, self.kv_lora_rank + self.rope_dim),
            "kv_b_proj": (self.kv_lora_rank, up_width),
            "o_proj": (self.value_width, self.hidden),
        }

    def mlp_linears(self, width: int) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of a feed-forward block `width` wide."""
        if self.gated_mlp:
            return {
                "gate_proj": (self.hidden, width),
                "up_proj": (self.hidden, width),
                "down_proj": (width, self.hidden),
            }
        return {"up_proj": (self.hidden, width), "down_proj": (width, self.hidden)}

    def linears(self) -> list[tuple[str, int, int, int]]:
        """(name, inputs, outputs, how many in the whole model) of every linear layer but the head."""
        found = [(name, i, o, self.layers) for name, (i, o) in self.attention_linears().items()]
        if not self.experts:
            return found + [(n, i, o, self.layers) for n, (i, o) in self.mlp_linears(self.ffn).items()]
        if self.dense_layers:
            found += [(n, i, o, self.dense_layers) for n, (i, o) in self.mlp_linears(self.dense_ffn).items()]
        if self.shared_ffn:
            shared = self.mlp_linears(self.shared_ffn).items()
            found += [(n, i, o, self.moe_layers) for n, (i, o) in shared]
        experts = self.mlp_linears(self.ffn).items()
        return found + [(n, i, o, self.moe_layers * self.experts) for n, (i, o) in experts]

    @property
    def linear_params(self) -> int:
        """Weights inside the layers' linear maps: what quantisation shrinks."""
        return sum(i * o * count for _, i, o, count in self.linears())

    @property
    def params(self) -> int:
        """All parameters, the head counted once where it is tied."""
        return self.exact_params or self.counted_params()

    def counted_params(self) -> int:
        """All parameters as far as the shape tells; biases of plain MLPs and norms included."""
        each = self.norms * self.hidden * (2 if self.layer_norm else 1)
        if self.qkv_bias:
            each += self.q_width + 2 * self.kv_width
        if self.qk_norm:
            each += 2 * self.head_dim
        if self.linear_bias:
            each += self.ffn * (2 if self.gated_mlp else 1) + 2 * self.hidden
        router = self.moe_layers * self.experts * self.hidden
        final = self.hidden * (2 if self.layer_norm else 1)
        tables = self.embedding_params + self.head_params + self.extra_params
        return tables + self.linear_params + router + self.layers * each + final

    @property
    def other_params(self) -> int:
        """Norms, biases, routers: everything that is neither linear, embedding nor head."""
        return max(0, self.params - self.linear_params - self.embedding_params - self.head_params)

    def active_ffn(self) -> int:
        """Width of the feed-forward work that one token causes in one layer."""
        if not self.experts:
            return self.ffn
        return self.ffn * self.experts_per_token + self.shared_ffn
