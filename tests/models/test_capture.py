"""Captured hidden states, and models with dropout or noise."""

from contextlib import suppress

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3ForCausalLM

from gar.models.capture import capture_generation, capture_hidden, has_dropout
from tests.models.test_families import tiny

IDS = torch.arange(8).reshape(2, 4)
ENDLESS = {"do_sample": True, "eos_token_id": None, "pad_token_id": 0}
SIZES = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny("Qwen3", **SIZES, num_key_value_heads=1)


def test_capture_hidden_receives_the_heads_inputs_until_its_block_ends(model):
    captured: list[Tensor] = []
    with capture_hidden(model.model, captured.append):
        model(input_ids=IDS)  # a pass with gradients is left alone
        with torch.no_grad():
            first = model(input_ids=IDS).logits
            second = model(input_ids=IDS + 3, logits_to_keep=1).logits  # the head alone reads fewer positions
    assert len(captured) == 2
    assert torch.equal(model.lm_head(captured[0]), first)
    assert captured[1].shape == (2, 4, 16)
    assert torch.allclose(model.lm_head(captured[1])[:, -1:], second, atol=1e-6)
    with torch.no_grad():
        with suppress(KeyError), capture_hidden(model.model, {}.pop):  # which fails
            model(input_ids=IDS)
        model(input_ids=IDS)
    assert len(captured) == 2


@pytest.mark.parametrize("use_cache", [True, False])
def test_capture_generation_keeps_what_predicted_each_token(model, use_cache):
    """The state of a sampled token equals the column before it in a forward pass over the whole sequence."""
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])  # the second prompt is padded on the left
    with capture_generation(model.model, most_bytes=10_000) as states:
        tokens = model.generate(IDS, attention_mask=mask, max_new_tokens=5, use_cache=use_cache, **ENDLESS)
    found = states.stacked(2, 5)
    assert found is not None
    with torch.no_grad():
        whole = model.model(input_ids=tokens[:1]).last_hidden_state[0, 3:-1]
        short = model.model(input_ids=tokens[1:, 2:]).last_hidden_state[0, 1:-1]
    torch.testing.assert_close(found, torch.stack([whole, short]), rtol=1e-5, atol=1e-5)


def test_capture_generation_gives_nothing_where_states_and_tokens_disagree(model):
    def states_of(most_bytes: int, calls: int = 1):
        with capture_generation(model.model, most_bytes=most_bytes) as states:
            for _ in range(calls):
                model.generate(IDS, max_new_tokens=3, **ENDLESS)
        return states

    needed = 2 * 3 * 16 * 4
    assert states_of(needed).stacked(2, 3) is not None
    assert states_of(needed - 1).stacked(2, 3) is None  # no room
    assert states_of(0).stacked(2, 0) is None
    assert states_of(needed).stacked(2, 4) is None  # tokens from elsewhere
    assert states_of(2 * needed, calls=2).stacked(2, 3) is None
    assert states_of(needed).stacked(4, 3) is None


def test_has_dropout_sees_modules_attention_and_noise_that_is_no_module(model):
    assert not has_dropout(model)
    model.config.attention_dropout = 0.1
    assert has_dropout(model.model)
    assert not has_dropout(torch.nn.Sequential(torch.nn.Dropout(0.0)))
    for family, settings, is_module in (
        ("gpt2", {}, True),
        ("opt", {"ffn_dim": 16, "dropout": 0.1, "attention_dropout": 0.0}, False),
        ("mixtral", {"intermediate_size": 16, "num_key_value_heads": 1, "router_jitter_noise": 0.1}, False),
    ):
        noisy = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **settings))
        assert any(isinstance(module, torch.nn.Dropout) for module in noisy.modules()) == is_module
        assert has_dropout(noisy.base_model)
