"""`trl.push_to_hub`, with a stand-in of the Hub. The real one was never tried."""

import os
import sys

import pytest
import yaml

from gar.records import RunFolder
from tests.support.hub import local_hub
from tests.support.processes import completed
from tests.train.conftest import FAST, under

TRAIN = [sys.executable, "-m", "gar", "train"]
PUSH = ["--trl.push_to_hub", "true"]


@pytest.mark.slow
def test_the_final_model_is_uploaded_with_its_card_and_nothing_else_is(tmp_path):
    with local_hub() as hub:
        flags = [*under(tmp_path, "mine"), "--trl.max_steps", "2", *PUSH]
        done = completed([*TRAIN, *FAST, *flags], env=os.environ | hub.environment())
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr  # as extensions say at the exit of what `gc.freeze` still holds
    model = tmp_path / "mine" / "model"
    assert set(hub.files) == {"me/mine"}
    written = {path.name: path.read_bytes() for path in model.iterdir()}
    assert hub.files["me/mine"] == {name: data for name, data in written.items() if name != "training_args.bin"}
    assert f"Uploaded        {hub.address}/me/mine" in done.stdout
    front = yaml.safe_load(hub.files["me/mine"]["README.md"].decode().split("---")[1])
    assert front["tags"] == ["gar", "trl", "gar-grpo"]
    for path in (tmp_path / "mine").rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes(), path


@pytest.mark.slow
def test_a_failed_upload_leaves_a_finished_run_and_names_the_command(tmp_path):
    with local_hub() as hub:
        hub.refuses = "/commit/"
        flags = [*under(tmp_path, "mine"), "--trl.max_steps", "2", *PUSH, "--trl.hub_model_id", "them/theirs"]
        done = completed([*TRAIN, *FAST, *flags], env=os.environ | hub.environment())
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert f"hf upload them/theirs {tmp_path / 'mine' / 'model'}" in done.stderr
    assert RunFolder.open(tmp_path / "mine").read_run().status == "finished"


@pytest.mark.slow
def test_a_hub_that_cannot_be_used_is_one_sentence_before_anything_is_loaded(tmp_path):
    with local_hub() as hub, local_hub() as closed:
        closed.refuses = "whoami"
        refused = closed.environment()
        unreachable = refused | {"HF_ENDPOINT": "http://127.0.0.1:9"}
        cases = [
            (unreachable, [], "trl.push_to_hub is true, and http://127.0.0.1:9 cannot be used: [Errno 111] "),
            (refused, [], f"trl.push_to_hub is true, and {closed.address} cannot be used: "),
            (
                refused | {"HF_HUB_OFFLINE": "1"},
                [],
                f"trl.push_to_hub is true, and {closed.address} cannot be used: Cannot ",
            ),
            (
                hub.environment(),
                ["--trl.hub_token", "hf_secret"],
                "trl.hub_token is set, and a run records ",
            ),
            (hub.environment(), ["--trl.hub_strategy", "checkpoint"], "trl.hub_strategy is checkpoint, expected end "),
        ]
        for environment, flags, message in cases:
            done = completed([*TRAIN, *FAST, *under(tmp_path, "mine"), *PUSH, *flags], env=os.environ | environment)
            assert done.returncode == 1, flags
            assert done.stderr.startswith(f"gar train: {message}"), done.stderr
            assert (done.stderr.count("\n"), "hf_secret" in done.stderr) == (1, False), done.stderr
    assert not hub.files
    assert not any(tmp_path.iterdir())
