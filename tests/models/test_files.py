"""What a model's files say is checked before torch is loaded."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from gar.errors import ConfigError, ModelError
from gar.models.embedded import embedded_path
from gar.models.files import attention_names, causal_model_types, check_model, has_chat_template
from gar.settings import ModelSettings
from tests.support.errors import raises


@pytest.fixture(autouse=True)
def _before_transformers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "transformers")


def edited(folder: Path, **changes: Any) -> str:
    """A copy of the embedded model with other values in its config.json."""
    shutil.copytree(embedded_path(), folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"model_type": "qwen33"}, "cannot-load", "Did you mean 'qwen3'"),
        ({"model_type": "clip"}, "cannot-load", "no causal language model"),
        ({"hidden_size": 96}, "mismatched-weights", "[36, 128], expected [36, 96]"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_rejected(tmp_path, changes, code, text):
    with raises(ModelError, code, text):
        check_model(ModelSettings(path=edited(tmp_path / "model", **changes)))


@pytest.mark.parametrize("attention", [None, "sdpa", "kernels-community/flash-attn"])
def test_a_whole_folder_passes(attention):
    check_model(ModelSettings(path="embedded", attention=attention))


def test_an_attention_that_transformers_lacks_is_rejected():
    with raises(ConfigError, "model.attention", "sdpa2"):
        check_model(ModelSettings(path="embedded", attention="sdpa2"))


def test_what_a_plugin_may_have_registered_is_left_to_loading(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", sys)
    check_model(ModelSettings(path=edited(tmp_path / "model", model_type="own"), attention="own"))


def test_the_names_in_the_text_of_transformers_are_those_it_has():
    assert set(causal_model_types()) == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert set(attention_names()) == {"eager", *ALL_ATTENTION_FUNCTIONS}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("tokenizer_config.json", '{"chat_template": "x"}', True),
        ("tokenizer_config.json", "{}", False),
        ("tokenizer_config.json", "{", None),
        ("chat_template.jinja", "x", True),
        ("other", "", None),
    ],
)
def test_a_folder_says_whether_its_tokenizer_has_a_chat_template(tmp_path, file, text, found):
    (tmp_path / file).write_text(text)
    assert has_chat_template(str(tmp_path)) is found
