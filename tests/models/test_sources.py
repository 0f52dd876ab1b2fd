"""Names of models: where each is read from."""

from gar.models.embedded import embedded_path
from gar.models.sources import model_path


def test_model_path_knows_the_embedded_model_a_folder_and_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    assert model_path("embedded") == str(embedded_path())
    assert model_path(tmp_path.name) == str(tmp_path)
    assert model_path("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
