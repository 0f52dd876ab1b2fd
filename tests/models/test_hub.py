"""A name without a model is rejected before anything is loaded, with the nearest that has one."""

import pytest

from gar.errors import ModelError
from gar.models.hub import check_model_name
from tests.support.errors import raises


@pytest.mark.parametrize(
    ("name", "near"),
    [("run", "run/model"), ("a.bin", ""), ("x/y/z", ""), ("embeded", "'embedded'")],
)
def test_what_holds_no_model_is_rejected_with_the_nearest(tmp_path, monkeypatch, name, near):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "a.bin").touch()
    with raises(ModelError, "no-model", near):
        check_model_name(name)


@pytest.mark.parametrize("name", ["embedded", "run/model", "Qwen/Qwen3-0.6B"])
def test_a_packaged_model_a_folder_and_a_hub_id_pass(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    check_model_name(name)


def test_offline_a_hub_id_is_rejected_unless_the_cache_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with raises(ModelError, "no-model", "'Qwen/Qwen3-0.6B'"):
        check_model_name("Qwen/Qwen3-0.6B")
    (tmp_path / "models--Qwen--Qwen3-0.6B").mkdir()
    check_model_name("Qwen/Qwen3-0.6B")
