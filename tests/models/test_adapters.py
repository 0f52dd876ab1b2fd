"""Adapters: which are trained and which rejected, their files, and the policy with, without and after one."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from gar.errors import ConfigError, ModelError
from gar.models.adapters import check_adapter, lora_config, save_adapter, save_merged
from gar.models.families import find_parts
from gar.scoring import signal_means
from gar.settings import AdapterSettings, SignalSettings
from tests.models.test_families import FAMILIES, SEQUENCES, VOCAB, tiny, with_prompts
from tests.models.test_load import edit, load, pickled
from tests.support.autograd import largest_distance, own_means
from tests.support.errors import raises
from tests.support.processes import completed
from tests.support.tiny import word_tokenizer

IDS = torch.arange(24).reshape(2, 12)
WORDS = ["<pad>", "<eos>", "<unk>", *(chr(ord("A") + i) for i in range(VOCAB - 3))]


def new_adapter(model: PreTrainedModel, **settings: Any) -> PeftModel:
    """An adapter without zeros, as if it was trained."""
    config = lora_config(model, AdapterSettings(rank=4))
    for name, value in settings.items():  # any field of PEFT, as in `peft_config=`
        setattr(config, name, value)
    adapted = get_peft_model(model, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                nn.init.normal_(parameter, std=0.1)
    return adapted.eval()


@torch.no_grad()
def logits(model: Any) -> Tensor:
    return model.eval()(input_ids=IDS).logits


def means(model: Any) -> Tensor:
    return signal_means(find_parts(model), SEQUENCES, SignalSettings())


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny("Qwen3", tie_word_embeddings=request.param)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Tensor]:
    """A folder with a base model, another with an adapter of it, and the logits of the two together."""
    tiny("Qwen3", tie_word_embeddings=False).save_pretrained(tmp_path / "base")
    tokenizer = word_tokenizer(WORDS)
    tokenizer.save_pretrained(tmp_path / "base")
    base, _ = load(tmp_path / "base")
    adapted = new_adapter(base)
    save_adapter(adapted, tokenizer, tmp_path / "adapter")
    return tmp_path / "adapter", logits(adapted)


def test_check_adapter_leaves_the_model_as_it_was_and_all_linear_spares_the_head(model):
    modules = {name: type(module) for name, module in model.named_modules()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for targets in (("q_proj", "mlp.down_proj"), ("all-linear",)):
        settings = AdapterSettings(rank=4, target_modules=targets)
        check_adapter(model, settings)
        assert {name: type(module) for name, module in model.named_modules()} == modules
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    adapted = get_peft_model(model, lora_config(model, settings, "v1"))  # PEFT would warn of an adapter that is left
    assert adapted.peft_config["default"].revision == "v1"
    linear = {name for name, kind in modules.items() if kind is nn.Linear}
    assert set(adapted.targeted_module_names) == linear - {"lm_head"} != linear
    assert {name for name, p in adapted.named_parameters() if p.requires_grad and "lora_" not in name} == set()


def test_check_adapter_rejects_what_cannot_be_trained():
    tied, untied = (tiny("Qwen3", tie_word_embeddings=is_tied) for is_tied in (True, False))
    embeddings = AdapterSettings(rank=4, target_modules=("embed_tokens",))
    check_adapter(untied, embeddings)
    with raises(ModelError, "adapted-head"):  # they are the head
        check_adapter(tied, embeddings)
    for names in (("q_proj", "k_porj"), ("proj",), ("zzz",), ("norm",), ()):
        with raises(ConfigError, "adapter.target_modules"):
            check_adapter(untied, AdapterSettings(rank=4, target_modules=names))
    tokens = LoraConfig(target_modules=["q_proj"], trainable_token_indices=[3, 4])
    with raises(ModelError, "adapted-head"):  # of an adapter that the policy brings
        check_adapter(get_peft_model(tied, tokens), AdapterSettings())
    adapted = new_adapter(untied)
    check_adapter(adapted, AdapterSettings())
    with raises(ConfigError, "adapter-on-adapter"):
        check_adapter(adapted, AdapterSettings(rank=4))


MOE = FAMILIES["Qwen3-MoE"]
EXPERTS = {
    ("all-linear",): {"q_proj": 4, "k_proj": 4, "v_proj": 4, "o_proj": 4, "gate_up_proj": 8, "down_proj": 4, "gate": 4},
    ("q_proj", "gate_proj", "up_proj", "down_proj"): {"q_proj": 4, "gate_up_proj": 8, "down_proj": 4},
    ("q_proj", "gate_up_proj", "down_proj"): {"q_proj": 4, "gate_up_proj": 4, "down_proj": 4},
    ("experts.gate_up_proj",): {"gate_up_proj": 4},
}
"""Names on a mixture of experts, and the ranks of what is adapted by its last name."""


# PEFT looks for the parameters of its own patterns among the modules.
@pytest.mark.filterwarnings("ignore:The following .*_pattern keys did not match any:RuntimeWarning")
@pytest.mark.parametrize("names", EXPERTS)
def test_check_adapter_takes_the_names_of_fused_experts(names):
    family, settings = MOE
    model = tiny(family, **settings)
    asked = AdapterSettings(rank=4, target_modules=names)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = check_adapter(model, asked, "v1")
    assert {name: value.tolist() for name, value in before.items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    assert config.revision == "v1"
    adapted = get_peft_model(model, config)
    ranks = {}
    for path, module in adapted.named_modules():
        if getattr(module, "lora_A", None):
            last = getattr(module, "parameter_name", "weight")
            ranks[path.rpartition(".")[2] if last == "weight" else last] = module.r["default"]
    assert ranks == EXPERTS[names]


def test_check_adapter_rejects_names_that_a_mixture_of_experts_does_not_have():
    family, settings = MOE
    for names, said in (
        (("q_proj", "gate_pro"), "Did you mean"),
        (("gate_up_prj",), "Did you mean 'gate_up_proj'?"),
        (("q_proj", "gate_proj"), "without also targeting up_proj"),
    ):
        with raises(ConfigError, "adapter.target_modules", said):
            check_adapter(tiny(family, **settings), AdapterSettings(rank=4, target_modules=names))


SAVED = """
import json, sys
from peft import get_peft_model
from gar.models.adapters import lora_config, sort_targets
from gar.settings import AdapterSettings
from tests.models.test_families import FAMILIES, tiny
family, settings = FAMILIES["Qwen3-MoE"]
model = tiny(family, **settings)
adapted = get_peft_model(model, lora_config(model, AdapterSettings(rank=4)))
sort_targets(adapted)
adapted.save_pretrained(sys.argv[1])
"""


def test_sort_targets_makes_the_file_of_an_adapter_the_same_in_every_process(tmp_path):
    """The order of a set of texts follows the seed of their hashes."""
    texts = set()
    for seed in range(4):
        command = [sys.executable, "-c", SAVED, str(tmp_path)]
        completed(command, check=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
        texts.add((tmp_path / CONFIG).read_text())
    assert len(texts) == 1
    assert json.loads(texts.pop())["target_parameters"] == ["down_proj", "gate.weight", "gate_up_proj"]


@pytest.mark.parametrize("settings", [{"lora_dropout": 0.5}, {"use_dora": True}], ids=["lora", "dora"])
def test_signal_is_the_adapters_merged_or_not_and_without_it_the_base_models(model, settings):
    base, adapted = means(model), new_adapter(model, **settings)
    parts, with_adapter = find_parts(adapted), means(adapted)
    assert largest_distance(with_adapter, own_means(adapted, SEQUENCES)) < 5e-6
    assert largest_distance(with_adapter, base) > 0.1
    with adapted.disable_adapter():
        assert torch.equal(signal_means(parts, SEQUENCES, SignalSettings()), base)
    assert torch.equal(means(adapted.train()), with_adapter)  # free of its dropout
    # Float32: W x + s B A x against (W + s B A) x, at most 2e-6 where measured.
    assert largest_distance(means(adapted.eval().merge_and_unload()), with_adapter) < 1e-5


def test_load_policy_puts_an_adapter_on_its_base(saved, tmp_path, monkeypatch):
    folder, expected = saved
    loaded, tokenizer = load(folder)
    assert torch.equal(logits(loaded), expected)
    assert (len(tokenizer), tokenizer.padding_side) == (VOCAB, "left")
    monkeypatch.chdir(tmp_path)
    base, _ = load("base")
    with loaded.disable_adapter():
        assert torch.equal(logits(loaded), logits(base))
    assert {"lora_" in name for name, p in loaded.named_parameters() if p.requires_grad} == {True}
    whole = str(tmp_path / "base")
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == whole
    assert new_adapter(base).peft_config["default"].base_model_name_or_path == whole
    for file in folder.glob("tokenizer*"):
        file.unlink()
    narrow, tokenizer = load(folder, dtype="bfloat16")
    assert len(tokenizer) == VOCAB  # the base's
    dtypes = {name.partition("lora_")[1]: p.dtype for name, p in narrow.named_parameters()}
    assert dtypes == {"": torch.bfloat16, "lora_": torch.float32}


def changed(change: Callable[[dict[str, Tensor], str], object]) -> Callable[[Path], None]:
    """Changes the weights in a folder, given with the first name."""

    def damage(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        change(weights, min(weights))
        save_file(weights, folder / WEIGHTS)

    return damage


def stack_adapters(folder: Path) -> None:
    folder.rename(folder.parent / "first")
    save_adapter(new_adapter(tiny("Qwen3")), word_tokenizer(WORDS), folder)
    edit(folder / CONFIG, base_model_name_or_path=str(folder.parent / "first"))


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BAD_ADAPTERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "moved": (lambda folder: edit(folder / CONFIG, base_model_name_or_path="/moved/away"), "adapter-base"),
    "without a base": (lambda folder: edit(folder / CONFIG, base_model_name_or_path=None), "adapter-files"),
    "broken": (lambda folder: (folder / CONFIG).write_text("{"), "adapter-files"),
    "of an adapter": (stack_adapters, "adapter-on-adapter"),
    "pickled": (lambda folder: pickled(folder / WEIGHTS, "adapter_model.bin"), "adapter-files"),
    "of prompts": (
        lambda folder: with_prompts(load(folder.parent / "base")[0]).save_pretrained(folder),
        "prompt-adapter",
    ),
    "of another family": (lambda folder: edit(folder / CONFIG, target_modules=["c_attn"]), "adapter-misfit"),
    "too few": (changed(lambda ws, first: ws.pop(first)), "adapter-misfit"),
    "too many": (
        changed(lambda ws, first: ws.update({first.replace("s.0", "s.7"): ws[first].clone()})),
        "adapter-misfit",
    ),
    "other shapes": (changed(lambda ws, first: ws.update({first: ws[first][:, :-1].contiguous()})), "adapter-misfit"),
    "junk": (lambda folder: (folder / WEIGHTS).write_bytes(b"junk"), "adapter-misfit"),
}


@pytest.mark.parametrize("name", BAD_ADAPTERS)
def test_load_policy_rejects_an_adapter_that_it_cannot_use(saved, name):
    damage, code = BAD_ADAPTERS[name]
    damage(saved[0])
    with raises(ModelError, code):
        load(saved[0])


def test_merged_model_is_the_adapter_and_its_head_is_untouched(model, tmp_path):
    tied = model.config.tie_word_embeddings
    head = model.lm_head.weight.clone()
    adapted = new_adapter(model)
    expected = logits(adapted)
    save_merged(adapted, word_tokenizer(WORDS), tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    # Float32: two orders of summation.
    assert float((logits(merged) - expected).abs().max() / expected.abs().max()) < 1e-5
    assert torch.equal(merged.lm_head.weight, head)
    assert (merged.lm_head.weight is merged.model.embed_tokens.weight) == tied == merged.config.tie_word_embeddings
    assert torch.equal(logits(load(tmp_path)[0]), logits(merged))  # a model like any other, tokenizer included


def test_save_merged_rejects_weights_that_are_not_finite(tmp_path):
    adapted = new_adapter(tiny("Qwen3"))
    with torch.no_grad():
        next(p for name, p in adapted.named_parameters() if "lora_B" in name)[0, 0] = torch.nan
    with raises(ModelError, "not-finite"):
        save_merged(adapted, word_tokenizer(WORDS), tmp_path)
    assert not list(tmp_path.iterdir())
