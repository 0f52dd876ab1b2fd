"""Checkpoints on disk, whole and broken: loaded, or rejected with the reason."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gar.errors import ModelError
from gar.models.load import load_policy
from gar.settings import ModelSettings

WORDS = ["<pad>", "<eos>", "<unk>", *"0123456789+-*"]


def make_tokenizer(words: list[str] = WORDS, **special: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", **({"eos_token": "<eos>", "pad_token": "<pad>"} | special)
    )


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, tie_word_embeddings=False,
        )  # fmt: skip
        return Qwen3ForCausalLM(config)


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


def test_load_policy_reads_no_pickle(checkpoint, model):
    (checkpoint / "model.safetensors").unlink()
    torch.save(model.state_dict(), checkpoint / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no file named model\.safetensors"):
        load(checkpoint)


def test_load_policy_runs_no_code_of_a_checkpoint(checkpoint, tmp_path):
    trace = tmp_path / "trace"
    (checkpoint / "modeling_own.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Own: ...\n")

    def claim(config: dict) -> None:
        config["model_type"] = "own"
        config["auto_map"] = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}

    edit_config(checkpoint, claim)
    with pytest.raises(ModelError, match="cannot load a causal language model from"):
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


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: folder.rename(folder.parent / "away"), "There is no folder of that name, .* Expected a folder"),
        (lambda folder: weights_of(folder, lambda content: b""), "Error while deserializing header"),
        (lambda folder: weights_of(folder, lambda content: b"not safetensors"), "Error while deserializing header"),
        (lambda folder: weights_of(folder, lambda content: content[:-100]), "Error while deserializing header"),
        (
            lambda folder: edit_config(folder, lambda config: config.update(intermediate_size=24)),
            "cannot load a causal language model",
        ),
        (
            lambda folder: edit_config(
                folder, lambda config: config.update(num_hidden_layers=2, layer_types=["full_attention"] * 2)
            ),
            r"lacks 11 weights .* model\.layers\.1\..* Was it saved whole",
        ),
        (
            lambda folder: edit_config(folder, lambda config: config.update(model_type="clip")),
            "cannot load a causal language model",
        ),
        (lambda folder: (folder / "config.json").unlink(), r"cannot load a causal language model .*config\.json"),
        (lambda folder: (folder / "config.json").write_text("{"), r"cannot load a causal language .*config\.json"),
        (
            lambda folder: [file.unlink() for file in folder.glob("tokenizer*")],
            "has no vocabulary, only special tokens. Was the model saved without its",
        ),
        (
            lambda folder: make_tokenizer(eos_token=None).save_pretrained(folder),
            "no end-of-sequence token, so no response would ever end",
        ),
        (
            lambda folder: make_tokenizer([*WORDS, "x"]).save_pretrained(folder),
            r"has 17 tokens but the model only 16 embeddings\. Do they belong together",
        ),
    ],
)
def test_load_policy_rejects_a_broken_checkpoint(checkpoint, damage, words):
    damage(checkpoint)
    with pytest.raises(ModelError, match=f"(?s){words}"):
        load(checkpoint)
