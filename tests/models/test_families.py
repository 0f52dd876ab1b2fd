"""For each model family, our vectors equal autograd through the model's own logits; other heads are errors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Qwen3ForCausalLM

from gar.errors import ModelError
from gar.models.families import find_parts
from gar.models.rope import fixed_context
from gar.response import TokenSequence
from gar.scoring import signal_means
from gar.settings import SignalSettings
from tests.support.autograd import largest_distance, own_means, random_sequences
from tests.support.errors import raises

VOCAB = 53
SEQUENCES = random_sequences(VOCAB, [(5, 12, range(12)), (9, 17, range(3, 15)), (2, 6, [0, 3, 5])])


def tiny(family: str, **settings) -> PreTrainedModel:
    """A random model of a family; `initializer_range` makes its logits large enough to bend under a soft-cap."""
    config = {
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "head_dim": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family.startswith("Phi"):  # derives the head's size, and Phi rotates half of it
        del config["head_dim"]
        config["num_attention_heads"] = 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind, config_kind = (getattr(transformers, f"{family}{name}") for name in ("ForCausalLM", "Config"))
        model = kind(config_kind(**(config | settings)))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero in a fresh model
                nn.init.normal_(parameter)
    return model.eval()


FAMILIES = {
    "Qwen3 tied": ("Qwen3", {"tie_word_embeddings": True}),
    "Qwen3 untied": ("Qwen3", {"tie_word_embeddings": False}),
    "Qwen3-MoE": (
        "Qwen3Moe",  # the grouped kernel has no float64
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "experts_implementation": "eager"},
    ),
    "Llama": ("Llama", {}),
    "Mistral": ("Mistral", {}),
    "OLMo2": ("Olmo2", {}),
    "Gemma2": ("Gemma2", {"query_pre_attn_scalar": 8, "final_logit_softcapping": 5.0}),
    "Granite": ("Granite", {"logits_scaling": 4.0}),
    "Cohere": ("Cohere", {"logit_scale": 0.25}),
    "Phi": ("Phi", {}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_find_parts_gives_the_vectors_of_the_models_own_logits(name):
    family, settings = FAMILIES[name]
    model = tiny(family, **settings)
    parts = find_parts(model)
    # Float32 against float64: at most 8e-7 where measured.
    assert largest_distance(signal_means(parts, SEQUENCES, SignalSettings()), own_means(model, SEQUENCES)) < 5e-6
    for dtype in (torch.bfloat16, torch.float16):
        assert find_parts(model.to(dtype)).weight.dtype == dtype


LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 6, "long_factor": [8.0] * 6}
LONG_ROPE: dict[str, Any] = {"original_max_position_embeddings": 16, "rope_parameters": LONG}


DYNAMIC_ROPE: dict[str, Any] = {
    "max_position_embeddings": 16,
    "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
}
ROPES = {"longrope": ("Phi3", LONG_ROPE), "dynamic": ("Qwen2", DYNAMIC_ROPE)}
"""Rotary embeddings that turn a whole batch by its longest row."""


def fresh_means(model: PreTrainedModel, sequences: list[TokenSequence]) -> Tensor:
    """`own_means`, each of a copy of a model that made no pass: dynamic frequencies outlast theirs."""
    return torch.cat([own_means(model, [sequence]) for sequence in sequences])


@pytest.mark.parametrize("name", ROPES)
def test_a_long_sequence_leaves_the_frequencies_of_the_others_alone(name):
    """A sequence counts whole, though a pass may need less of it. Lengths around the original one, 16."""
    lengths = ((12, 12), (13, 13), (13, 10), (11, 11), (20, 20), (12, 5), (20, 18), (16, 9), (16, 16))
    sequences = random_sequences(VOCAB, [(4, n, range(1, m)) for n, m in lengths])
    family, settings = ROPES[name]
    expected, model = fresh_means(tiny(family, **settings), sequences), tiny(family, **settings)
    parts = find_parts(model)
    for _ in range(2):
        assert largest_distance(signal_means(parts, sequences, SignalSettings()), expected) < 5e-6
        model(input_ids=torch.arange(50)[None])  # a pass of somebody else's between, and another order
        sequences, expected = sequences[::-1], expected.flip(0)


@pytest.mark.parametrize("name", ROPES)
def test_an_engine_that_packs_rows_has_the_context_of_one_set_of_frequencies(name):
    """16 tokens keep LongRoPE's first set, and 15 dynamic NTK's, which transformers does not reset at 16."""
    family, settings = ROPES[name]
    config, fixed = tiny(family, **settings).config, {"longrope": 16, "dynamic": 15}[name]
    assert fixed_context(config) == fixed_context(config, fixed) == fixed
    with raises(ModelError, "changing-rope", str(fixed), str(fixed + 1)):
        fixed_context(config, fixed + 1)


def test_other_rotary_embeddings_keep_their_context():
    config = tiny("Qwen2", max_position_embeddings=16).config
    assert fixed_context(config, 10**6) == 16  # what is too long for the context is said elsewhere


@pytest.fixture
def fresh_accelerator():
    """An earlier trainer sets the precision of this process, and a later one does not set it again."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("fresh_accelerator")
@pytest.mark.parametrize("name", ["Qwen3 tied", "Gemma2", "Phi"])
def test_float32_weights_are_compared_in_float32_under_autocast_and_after_bfloat16_training(name):
    family, settings = FAMILIES[name]
    model = tiny(family, **settings)
    expected = signal_means(find_parts(model), SEQUENCES, SignalSettings())
    with torch.autocast("cpu", torch.bfloat16):
        find_parts(model)
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    ids = torch.arange(6)[None]
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0))
    accelerator.backward(prepared(input_ids=ids, labels=ids).loss)
    optimizer.step()
    rounded = prepared(input_ids=ids).logits
    found = signal_means(find_parts(accelerator.unwrap_model(prepared)), SEQUENCES, SignalSettings())
    assert torch.equal(found, expected)
    assert torch.equal(prepared(input_ids=ids).logits, rounded)  # it still runs in bfloat16
    head = model.get_output_embeddings()
    head.forward = lambda hidden: 1.001 * nn.functional.linear(hidden, head.weight, head.bias)  # within bfloat16's
    with raises(ModelError, "unknown-head"):
        find_parts(model)


def test_find_parts_leaves_the_model_as_it_was():
    model = tiny("Qwen3").train()
    model.model.norm.eval()
    modes = [module.training for module in model.modules()]
    ids = torch.arange(6)[None]
    before = model(input_ids=ids).logits
    find_parts(model)
    assert torch.equal(model(input_ids=ids).logits, before)  # the probe's hook is gone
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


class Bent(Qwen3ForCausalLM):
    """With a soft-cap that its configuration does not declare."""

    def forward(self, **kwargs):
        return SimpleNamespace(logits=30 * torch.tanh(super().forward(**kwargs).logits / 30))


class WithoutLogits(Qwen3ForCausalLM):
    """As Unsloth patches a model: hidden states in place of logits, or an object without any."""

    def forward(self, **kwargs):
        logits = super().forward(**kwargs).logits
        return SimpleNamespace(logits=logits[..., :24] if self.gives_hidden else object())


class Linear4bit(nn.Linear):
    """In place of the head of a model loaded in 4 bit."""


def without_logits(gives_hidden: bool) -> PreTrainedModel:
    model = WithoutLogits(tiny("Qwen3").config)
    model.gives_hidden = gives_hidden
    return model


def bent(initializer_range: float) -> PreTrainedModel:
    model = Bent(tiny("Qwen3").config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=initializer_range)
    return model


def of_another_family(name: str, **settings: Any) -> PreTrainedModel:
    sizes = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **sizes, **settings)).eval()


def with_head(head: nn.Module) -> PreTrainedModel:
    model = tiny("Qwen3")
    model.lm_head = head
    return model


def int8_head() -> nn.Linear:
    head = nn.Linear(24, VOCAB, bias=False)
    head.weight = nn.Parameter(head.weight.to(torch.int8), requires_grad=False)
    return head


def with_nan(name: str) -> PreTrainedModel:
    model = tiny("Qwen3", tie_word_embeddings=False)
    model.get_parameter(name).data[-1] = torch.nan
    return model


def adapted(tied: bool, **settings: Any) -> nn.Module:
    return get_peft_model(tiny("Qwen3", tie_word_embeddings=tied), LoraConfig(**settings))


def with_prompts(model: PreTrainedModel) -> Any:
    return get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


TINY_MAMBA = {"mamba_d_ssm": 24, "mamba_n_heads": 4, "mamba_d_head": 6}
UNKNOWN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a soft-cap that is not declared": (lambda: bent(0.3), "unknown-head"),
    "one that small logits hardly feel": (lambda: bent(0.002), "unknown-head"),
    "a factor of the head": (lambda: tiny("FalconH1", lm_head_multiplier=0.5, **TINY_MAMBA), "unknown-head"),
    "layers before it": (lambda: of_another_family("bert", intermediate_size=24, is_decoder=True), "unknown-head"),
    "around its backbone": (lambda: of_another_family("opt", ffn_dim=24), "unknown-head"),
    "hidden states as logits": (lambda: without_logits(True), "no-logits"),
    "no logits": (lambda: without_logits(False), "no-logits"),
    "no head": (lambda: tiny("Qwen3").model, "no-head"),
    "4 bit": (lambda: with_head(Linear4bit(24, VOCAB, bias=False)), "quantized-head"),
    "8 bit": (lambda: with_head(int8_head()), "quantized-head"),
    "NaN norm": (lambda: with_nan("model.norm.weight"), "not-finite"),
    "NaN head": (lambda: with_nan("lm_head.weight"), "not-finite"),
    "prompts": (lambda: with_prompts(tiny("Qwen3")), "prompt-adapter"),
    "adapted": (lambda: adapted(False, target_modules=["q_proj", "lm_head"]), "adapted-head"),
    "saved": (lambda: adapted(False, target_modules=["q_proj"], modules_to_save=["lm_head"]), "adapted-head"),
    "tied tokens": (lambda: adapted(True, target_modules=["q_proj"], trainable_token_indices=[3]), "adapted-head"),
}


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("name", UNKNOWN)
def test_find_parts_rejects_what_the_closed_form_does_not_know(name):
    make, code = UNKNOWN[name]
    with raises(ModelError, code):
        find_parts(make())


def test_find_parts_of_a_float32_head_on_a_bfloat16_backbone():
    """Made by TRL's `cast_lm_head_to_fp32`."""
    model = tiny("Qwen3", tie_word_embeddings=False).to(torch.bfloat16)
    head = model.lm_head.float()
    head.forward = lambda hidden: nn.functional.linear(hidden.float(), head.weight)
    means = signal_means(find_parts(model), SEQUENCES, SignalSettings())
    assert bool(means.isfinite().all())
    plain = tiny("Qwen3", tie_word_embeddings=False).to(torch.bfloat16)
    plain.lm_head.weight.data = head.weight.to(torch.bfloat16)
    expected = signal_means(find_parts(plain), SEQUENCES, SignalSettings())
    torch.testing.assert_close(means, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))  # the same weights
