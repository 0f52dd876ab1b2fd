"""The shape of a causal language model, for counting operations: from its configuration alone, without weights."""

from pathlib import Path
from typing import Any

from gar.cost import ModelShape
from gar.errors import ModelError
from gar.models.sources import model_source

QWEN3 = {
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32),
    "Qwen/Qwen3-14B": (5120, 17408, 40, 40),
    "Qwen/Qwen3-32B": (5120, 25600, 64, 64),
}
"""Known without a network: hidden size, intermediate size, layers, query heads (of 128, with 8 key-value heads)."""


def model_shape(name: str) -> ModelShape:
    """The shape of a model, named as `ModelSettings.path` names it.

    Parameters are counted on a model without storage. One of the dense Qwen3 family needs no network.

    Raises:
        ModelError: Its configuration cannot be loaded, or it is a mixture of experts, whose tokens pass through some
            of the parameters only.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config

    if name in QWEN3 and not Path(name).exists():
        hidden, intermediate, layers, heads = QWEN3[name]
        config: Any = Qwen3Config(
            vocab_size=151_936, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=8, head_dim=128,
        )  # fmt: skip
    else:
        source = model_source(name)
        try:
            config = AutoConfig.from_pretrained(source.path, **source.options)
        except (OSError, ValueError) as error:
            raise ModelError(f"the configuration of '{name}' cannot be loaded: {error}") from error
    text = config.get_text_config()
    if getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None):
        raise ModelError(
            f"'{name}' is a mixture of experts: a token passes through some of its parameters, and which share is not "
            "read from its configuration. Count a dense model of its active size."
        )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    embeddings = {
        id(p): p.numel() for m in (model.get_input_embeddings(), model.get_output_embeddings()) for p in m.parameters()
    }
    head_width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return ModelShape(
        body_parameters=sum(p.numel() for p in model.parameters()) - sum(embeddings.values()),
        layers=text.num_hidden_layers,
        attention_width=text.num_attention_heads * head_width,
        hidden=text.hidden_size,
        vocab=text.vocab_size,
    )
