"""Checkpoints on disk, whole and broken: loaded, or rejected with the reason."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar.errors import ModelError
from gar.models.load import load_policy
from gar.settings import ModelSettings
from tests.support.errors import raises
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ["<pad>", "<eos>", "<unk>", *"0123456789+-*"]


def make_tokenizer(words: list[str] = WORDS, **special: str) -> PreTrainedTokenizerFast:
    return word_tokenizer(words, **special)


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(
        WORDS, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1
    )


@pytest.fixture
def checkpoint(tmp_path: Path, model: Qwen3ForCausalLM) -> Path:
    """A whole one: configuration, safetensors, tokenizer."""
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def load(path: Path | str, **settings):
    return load_policy(ModelSettings(path=str(path), **settings))


def edit_config(folder: Path, change: Callable[[dict], None]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_load_policy_reads_weights_and_tokenizer(checkpoint, model):
    loaded, tokenizer = load(checkpoint)
    assert all(torch.equal(loaded.get_parameter(name), value) for name, value in model.named_parameters())
    assert tokenizer("3 + 4")["input_ids"] == [WORDS.index(word) for word in "3+4"]
    assert tokenizer.padding_side == "left"


def test_load_policy_runs_no_code_of_a_checkpoint(checkpoint, tmp_path):
    trace = tmp_path / "trace"
    (checkpoint / "modeling_own.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Own: ...\n")

    def claim(config: dict) -> None:
        config["model_type"] = "own"
        config["auto_map"] = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}

    edit_config(checkpoint, claim)
    with raises(ModelError, "cannot-load"):
        load(checkpoint)
    assert not trace.exists()


def test_load_policy_does_not_miss_the_head_of_a_tied_model(checkpoint, model):
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(checkpoint)
    loaded, _ = load(checkpoint)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def weights_of(folder: Path, change: Callable[[bytes], bytes]) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(change(file.read_bytes()))


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


LAYERS = {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda folder: folder.rename(folder.parent / "away"), "cannot-load"),
    "pickled": (pickle_weights, "cannot-load"),
    "empty weights": (lambda folder: weights_of(folder, lambda content: b""), "cannot-load"),
    "junk": (lambda folder: weights_of(folder, lambda content: b"not safetensors"), "cannot-load"),
    "cut": (lambda folder: weights_of(folder, lambda content: content[:-100]), "cannot-load"),
    "other shapes": (lambda folder: edit_config(folder, lambda c: c.update(intermediate_size=24)), "cannot-load"),
    "missing layer": (lambda folder: edit_config(folder, lambda c: c.update(LAYERS)), "missing-weights"),
    "no language model": (lambda folder: edit_config(folder, lambda c: c.update(model_type="clip")), "cannot-load"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "cannot-load"),
    "half a configuration": (lambda folder: (folder / "config.json").write_text("{"), "cannot-load"),
    "no tokenizer": (lambda folder: [file.unlink() for file in folder.glob("tokenizer*")], "no-tokenizer"),
    "no end token": (lambda folder: make_tokenizer(eos_token=None).save_pretrained(folder), "no-end-token"),
    "a word too many": (lambda folder: make_tokenizer([*WORDS, "x"]).save_pretrained(folder), "vocabulary"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_load_policy_rejects_a_broken_checkpoint(checkpoint, name):
    damage, code = BROKEN[name]
    damage(checkpoint)
    with raises(ModelError, code):
        load(checkpoint)
