"""`gar models`: what it says."""

import pytest

from gar.cli.main import main


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GAR_CACHE", str(tmp_path))


def test_models_lists_what_there_is(capsys):
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert "embedded" in text
    assert "not here yet: gar models fetch smollm2" in text


def test_models_fetch_refuses_an_unknown_name(capsys):
    assert main(["models", "fetch", "gpt"]) == 1
    assert capsys.readouterr().err == "gar models: there is no model 'gpt' to fetch, expected one of smollm2\n"


def test_a_model_that_was_not_fetched_is_named(capsys):
    assert main(["cost", "--model", "smollm2"]) == 1
    assert "Fetch it with: gar models fetch smollm2" in capsys.readouterr().err
