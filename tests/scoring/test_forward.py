"""Mean vectors from bounded forward passes against the model's own loss under autograd."""

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from gar.models.capture import capture_hidden
from gar.models.families import find_parts
from gar.response import TokenSequence
from gar.scoring.forward import means_from_hidden, signal_means, step_means
from gar.settings import SignalSettings
from tests.models.test_families import tiny
from tests.support.autograd import largest_distance, own_means, random_sequences

VOCAB = 61
# Context tokens, tokens, scored positions: mixed lengths, a gap, a span in the middle, one token, none.
SHAPES = [
    (5, 12, range(12)),
    (9, 30, range(3, 20)),
    (1, 7, [0, 1, 4, 6]),
    (3, 4, []),
    (2, 1, [0]),
    (17, 25, range(20, 25)),
    (4, 9, [8]),
]
# Float32 against float64 with the model's own float32 norms: 7e-7 apart where measured.
CLOSE = 5e-6


def tiny_qwen3(*, tied: bool, **settings) -> Qwen3ForCausalLM:
    return tiny("Qwen3", vocab_size=VOCAB, max_position_embeddings=128, tie_word_embeddings=tied, **settings)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request) -> Qwen3ForCausalLM:
    return tiny_qwen3(tied=request.param)


@pytest.fixture
def sequences() -> list[TokenSequence]:
    return random_sequences(VOCAB, SHAPES)


@pytest.fixture
def scorable(sequences) -> list[TokenSequence]:
    return [sequence for sequence in sequences if sequence.positions]


def forward_shapes(backbone: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the ids of each forward pass from now on."""
    shapes: list[tuple[int, ...]] = []

    def note(module: nn.Module, args: tuple, kwargs: dict) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    backbone.register_forward_pre_hook(note, with_kwargs=True)
    return shapes


def test_signal_means_equal_autograd_through_the_models_own_loss(model, scorable):
    """In passes of any size that the token budget allows, and under other settings."""
    parts, expected = find_parts(model), own_means(model, scorable)
    for bound in (1, 40, 64, 10_000):
        shapes = forward_shapes(parts.backbone)
        means = signal_means(parts, scorable, SignalSettings(max_batch_tokens=bound))
        assert largest_distance(means, expected) < CLOSE
        assert means.dtype == torch.float32
        assert sum(rows for rows, _ in shapes) == len(scorable)
        assert all(rows * width <= bound or rows == 1 for rows, width in shapes)
    for chosen in ({"kind": "gradient"}, {"temperature": 0.5}, {"kind": "gradient", "temperature": 2}):
        found = signal_means(parts, scorable, SignalSettings(**chosen))
        assert largest_distance(found, own_means(model, scorable, **chosen)) < CLOSE


def test_signal_means_pass_thresholds_and_keep_fractions_to_the_core(model, scorable):
    parts = find_parts(model)
    plain = signal_means(parts, scorable, SignalSettings())
    assert not torch.allclose(signal_means(parts, scorable, SignalSettings(activation_threshold=0.3)), plain)
    fractions = [1.0, 0.5, 1.0, 1.0, 0.2, 1.0]
    kept = signal_means(parts, scorable, SignalSettings(max_batch_tokens=40), keep_fractions=fractions)
    changed = [largest_distance(kept[i : i + 1], plain[i : i + 1]) > CLOSE for i in range(len(scorable))]
    assert changed == [fraction < 1 for fraction in fractions]


def test_step_means_keep_the_strongest_tokens_of_anchors_alone(model, scorable):
    parts, settings = find_parts(model), SignalSettings(expert_keep_fraction=0.5)
    plain, kept = (signal_means(parts, scorable, settings, keep_fractions=[share] * 6) for share in (1.0, 0.5))
    responses, anchors = step_means(parts, scorable, scorable, settings)
    assert largest_distance(responses, plain) < CLOSE
    assert largest_distance(anchors, kept) < CLOSE < largest_distance(anchors, plain)


def test_signal_means_pass_over_no_more_than_they_need(model, sequences):
    """Up to the last scored token of a sequence, and over none without scored tokens, which gets zeros."""
    parts = find_parts(model)
    shapes = forward_shapes(parts.backbone)
    nothing = TokenSequence(context_ids=[], ids=[], positions=[])
    assert signal_means(parts, [nothing, sequences[3]], SignalSettings()).count_nonzero() == 0
    assert signal_means(parts, [], SignalSettings()).shape == (0, 24)
    assert shapes == []
    means = signal_means(parts, sequences, SignalSettings())
    assert [bool(row.any()) for row in means] == [bool(sequence.positions) for sequence in sequences]
    shapes.clear()
    found = signal_means(parts, [sequences[1]], SignalSettings())
    assert shapes == [(1, 9 + 19)]  # the 20th token is predicted from the one before
    assert largest_distance(found, means[1:2]) < CLOSE


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_signal_means_are_the_same_in_train_mode_with_dropout_and_checkpointing(scorable, grad):
    expected = signal_means(find_parts(tiny_qwen3(tied=True)), scorable, SignalSettings())
    model = tiny_qwen3(tied=True, attention_dropout=0.5)
    model.gradient_checkpointing_enable()
    model.train()
    model.model.norm.eval()  # one module in a different mode
    modes = {name: module.training for name, module in model.named_modules()}
    with torch.set_grad_enabled(grad):
        means = signal_means(find_parts(model), scorable, SignalSettings())
        assert torch.is_grad_enabled() is grad
    assert torch.equal(means, expected)
    assert not means.requires_grad
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert model.is_gradient_checkpointing


def test_signal_means_of_bad_sequences_are_an_error_that_restores_the_mode(model):
    model.train()
    parts = find_parts(model)
    fine = TokenSequence(context_ids=[], ids=[1, 2, 3], positions=[1, 2])
    assert bool(signal_means(parts, [fine], SignalSettings()).any())
    lost = TokenSequence(context_ids=[], ids=[1, 2, 3], positions=[0, 1])
    unknown = TokenSequence(context_ids=[1], ids=[VOCAB + 5], positions=[0])
    for bad, text in ((unknown, "target_ids"), (lost, "sequence 1")):
        with pytest.raises(ValueError, match=text):
            signal_means(parts, [fine, bad], SignalSettings())
        assert all(module.training for module in model.modules())
    with pytest.raises(ValueError, match="sequence 0"):
        means_from_hidden(parts, torch.zeros(1, 3, 24), [lost], [0], SignalSettings())
    model.eval()


def test_means_from_hidden_equal_autograd_on_left_padded_captured_states(model, scorable):
    """In TRL's layout: prompts padded on the left, responses on the right, in mini-batches."""
    parts = find_parts(model)
    prompt_width = max(len(sequence.context_ids) for sequence in scorable)
    width = prompt_width + max(len(sequence.ids) for sequence in scorable)
    input_ids = torch.zeros(len(scorable), width, dtype=torch.long)
    mask = torch.zeros_like(input_ids)
    for row, sequence in enumerate(scorable):
        columns = slice(prompt_width - len(sequence.context_ids), prompt_width + len(sequence.ids))
        input_ids[row, columns] = torch.tensor([*sequence.context_ids, *sequence.ids])
        mask[row, columns] = 1
    captured: list[Tensor] = []
    with torch.no_grad(), capture_hidden(parts.backbone, captured.append):
        for rows in torch.arange(len(scorable)).split(2):
            model(input_ids=input_ids[rows], attention_mask=mask[rows])
    found = means_from_hidden(parts, torch.cat(captured), scorable, [prompt_width] * len(scorable), SignalSettings())
    assert largest_distance(found, own_means(model, scorable)) < CLOSE
