"""Names of models: where each is read from, and what a name that leads nowhere says."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from gar.errors import ModelError
from gar.models.embedded import embedded_path
from gar.models.families import find_parts
from gar.models.load import load_policy, load_tokenizer
from gar.models.sources import ModelSource, fetched_folder, model_source
from gar.settings import ModelSettings
from tests.models.tiny_gguf import HIDDEN, TOKENS, write_tiny_gguf


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.Q4_1.gguf")


def test_model_source_knows_the_embedded_model_a_folder_a_file_and_a_hub_id(tmp_path, file, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    assert model_source("embedded") == ModelSource(path=str(embedded_path()))
    assert model_source(tmp_path.name) == ModelSource(path=str(tmp_path))
    assert model_source(f"{tmp_path.name}/{file.name}") == ModelSource(path=str(tmp_path), gguf_file=file.name)
    assert model_source("Qwen/Qwen3-0.6B") == ModelSource(path="Qwen/Qwen3-0.6B")


def test_model_source_says_how_to_fetch_a_model_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("GAR_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"not on this machine yet. Fetch it with: gar models fetch smollm2 \(93 MB"):
        model_source("smollm2")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GAR_CACHE": "/a"}, "/a/models/smollm2"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/gar/models/smollm2"),
        ({"HOME": "/c"}, "/c/.cache/gar/models/smollm2"),
    ],
)
def test_fetched_folder_follows_the_environment(monkeypatch, variables, expected):
    for name in ("GAR_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert fetched_folder("smollm2") == Path(expected)


def test_a_gguf_file_is_widened_to_float32_and_can_be_trained_and_saved(file, tmp_path):
    model, tokenizer = load_policy(ModelSettings(path=str(file)))
    tensor = next(tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == "blk.0.ffn_up.weight")
    expected = gguf.dequantize(tensor.data, tensor.tensor_type)
    weight = model.get_parameter("model.layers.0.mlp.up_proj.weight")
    assert weight.dtype == torch.float32
    np.testing.assert_array_equal(weight.detach().numpy(), expected)

    parts = find_parts(model)
    assert parts.head.weight.shape == (len(TOKENS), HIDDEN)
    assert tokenizer.padding_side == "left"
    assert tokenizer.convert_ids_to_tokens(tokenizer("12+3").input_ids) == ["12", "+", "3"]

    ids = tokenizer("12+3=", return_tensors="pt").input_ids
    model(input_ids=ids, labels=ids).loss.backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum() > 0

    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again, _ = load_policy(ModelSettings(path=str(tmp_path / "saved")))
    assert torch.equal(again.get_parameter("model.layers.0.mlp.up_proj.weight"), weight)


@pytest.mark.parametrize(("pre_tokenizer", "tokens"), [("gpt-2", ["12", "+", "3"]), ("smollm", ["1", "2", "+", "3"])])
def test_a_gguf_file_says_whether_digits_are_tokens_of_their_own(tmp_path, pre_tokenizer, tokens):
    tokenizer = load_tokenizer(str(write_tiny_gguf(tmp_path / "tiny.gguf", pre_tokenizer=pre_tokenizer)))
    ids = tokenizer.encode("12+3", add_special_tokens=False)
    assert [TOKENS[token] for token in ids] == tokens
    tokenizer.save_pretrained(tmp_path / "saved")
    assert load_tokenizer(str(tmp_path / "saved")).encode("12+3", add_special_tokens=False) == ids


# peft looks for a config.json beside the base model, to see whether tokens were added; none ever are.
@pytest.mark.filterwarnings("ignore:Could not find a config file:UserWarning")
def test_an_adapter_trained_on_a_gguf_file_finds_it_again(file, tmp_path):
    peft = pytest.importorskip("peft", reason="needs the extra peft")
    model, tokenizer = load_policy(ModelSettings(path=str(file)))
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path / "adapter")
    loaded, _ = load_policy(ModelSettings(path=str(tmp_path / "adapter")))
    ids = tokenizer("1+2=", return_tensors="pt").input_ids
    assert torch.equal(loaded(input_ids=ids).logits, adapted(input_ids=ids).logits)


def test_a_gguf_file_of_an_unknown_architecture_says_which_are_read(tmp_path):
    file = write_tiny_gguf(tmp_path / "odd.gguf", architecture="zebra")
    with pytest.raises(ModelError, match=r"'.*odd.gguf'.*zebra[\s\S]*transformers reads .*llama.*qwen3"):
        load_policy(ModelSettings(path=str(file)))


@pytest.mark.parametrize("share", [0, 0.001, 0.01, 0.1, 0.5, 0.99])
def test_a_gguf_file_that_was_cut_is_a_sentence(tmp_path, file, share):
    content = file.read_bytes()
    (tmp_path / "broken.gguf").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError, match=r"cannot load .* from .*'.*broken.gguf'"):
        load_policy(ModelSettings(path=str(tmp_path / "broken.gguf")))


def test_a_file_that_is_no_gguf_is_a_sentence(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"no such format at all")
    with pytest.raises(ModelError, match=r"cannot load .* from .*'.*broken.gguf'"):
        load_policy(ModelSettings(path=str(tmp_path / "broken.gguf")))


def test_a_gguf_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(ModelError, match=r"there is no file '.*nowhere.gguf'"):
        load_policy(ModelSettings(path=str(tmp_path / "nowhere.gguf")))
