"""Checkpoints on disk: whole ones are loaded, broken ones rejected with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen3ForCausalLM

from gar.errors import ModelError
from gar.models.load import load_policy
from gar.settings import ModelSettings
from tests.support.errors import raises
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ["<pad>", "<eos>", "<unk>", *"0123456789+-*"]


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(WORDS, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)


@pytest.fixture
def checkpoint(tmp_path: Path, model: Qwen3ForCausalLM) -> Path:
    """A whole one: configuration, safetensors, tokenizer."""
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    word_tokenizer(WORDS).save_pretrained(folder)
    return folder


def load(path: Path | str, **settings):
    return load_policy(ModelSettings(path=str(path), **settings))


def edit(file: Path, **changes: Any) -> None:
    """Change values of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def pickled(file: Path, name: str) -> None:
    torch.save(load_file(file), file.with_name(name))
    file.unlink()


def test_load_policy_reads_weights_and_tokenizer(checkpoint, model):
    loaded, tokenizer = load(checkpoint)
    assert all(torch.equal(loaded.get_parameter(name), value) for name, value in model.named_parameters())
    assert tokenizer("3 + 4")["input_ids"] == [WORDS.index(word) for word in "3+4"]
    assert tokenizer.padding_side == "left"
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(checkpoint)
    loaded, _ = load(checkpoint)  # the head, which is not in the file, is not missing
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_auto_is_float32_where_all_weights_are_trained(checkpoint, model):
    model.to(torch.bfloat16).save_pretrained(checkpoint)
    path = str(checkpoint)
    for settings, trains_all, dtype in (
        (ModelSettings(path=path), True, torch.float32),
        (ModelSettings(path=path), False, torch.bfloat16),
        (ModelSettings(path=path, dtype="bfloat16"), True, torch.bfloat16),
    ):
        loaded, _ = load_policy(settings, trains_all=trains_all)
        assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}


def test_load_policy_runs_no_code_of_a_checkpoint(checkpoint, tmp_path):
    trace = tmp_path / "trace"
    (checkpoint / "modeling_own.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Own: ...\n")
    classes = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    edit(checkpoint / "config.json", model_type="own", auto_map=classes)
    with raises(ModelError, "cannot-load"):
        load(checkpoint)
    assert not trace.exists()


WEIGHTS, CONFIG = "model.safetensors", "config.json"
LAYERS = {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda folder: folder.rename(folder.parent / "away"), "cannot-load"),
    "pickled": (lambda folder: pickled(folder / WEIGHTS, "pytorch_model.bin"), "cannot-load"),
    "empty weights": (lambda folder: (folder / WEIGHTS).write_bytes(b""), "cannot-load"),
    "cut": (lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100]), "cannot-load"),
    "other shapes": (lambda folder: edit(folder / CONFIG, intermediate_size=24), "mismatched-weights"),
    "missing layer": (lambda folder: edit(folder / CONFIG, **LAYERS), "missing-weights"),
    "no language model": (lambda folder: edit(folder / CONFIG, model_type="clip"), "cannot-load"),
    "half a configuration": (lambda folder: (folder / CONFIG).write_text("{"), "cannot-load"),
    "no tokenizer": (lambda folder: [file.unlink() for file in folder.glob("tokenizer*")], "no-tokenizer"),
    "no end token": (lambda folder: word_tokenizer(WORDS, eos_token=None).save_pretrained(folder), "no-end-token"),
    "a word too many": (lambda folder: word_tokenizer([*WORDS, "x"]).save_pretrained(folder), "vocabulary"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_load_policy_rejects_a_broken_checkpoint(checkpoint, name):
    damage, code = BROKEN[name]
    damage(checkpoint)
    with raises(ModelError, code):
        load(checkpoint)
