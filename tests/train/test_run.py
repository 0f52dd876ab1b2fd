"""The main job as a user runs it: real processes, really killed."""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from gar.cli.main import main
from gar.config import make_config, read_preset, with_template
from gar.errors import LostRankError, RecordError
from gar.records import RunFolder, open_run
from gar.train.run import _status_of
from tests.support.files import write_jsonl
from tests.train.conftest import FAST, under


def test_run_leaves_what_the_docs_promise(finished: RunFolder):
    record = finished.read_run()
    assert record.status == "finished"
    assert record.versions["trl"] is not None
    assert record.summary["steps"] == 4
    assert [row["step"] for row in open_run(finished.path).metrics] == [1, 2, 3, 4]
    assert open_run(finished.path).steps == [1, 2, 3, 4]
    state = json.loads((finished.path / "checkpoints" / "checkpoint-4" / "trainer_state.json").read_text())
    assert [row["step"] for row in state["log_history"]] == [4]  # the others are in metrics.jsonl
    for name in ("before", "after"):
        sets = open_run(finished.path).read_json(f"evaluation/{name}.json")["sets"]
        assert set(sets) == {"test", "harder"}
        assert set(sets["test"]["pass_at"]) == {"1", "4"}
        correct = Counter(
            (row["set_name"], row["problem_id"])
            for row in open_run(finished.path).samples(name).to_pylist()
            if row["verified"] and row["well_formatted"]
        )
        counts = {(part, row["id"]): row["num_correct"] for part in sets for row in sets[part]["problems"]}
        assert correct == Counter(counts)
    assert (finished.path / "figures" / "learning-curve.png").stat().st_size > 10_000


def test_interrupt_says_how_to_go_on_and_keeps_the_checkpoint(tmp_path: Path):
    command = [sys.executable, "-m", "gar", "train", *FAST, *under(tmp_path, "stopped")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "stopped" / "checkpoints" / "checkpoint-2" / "manifest.jsonl").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "last whole checkpoint is checkpoint-2" in " ".join(out.split())
    assert "Traceback" not in err
    assert err.endswith("\ngar train: interrupted\n")
    record = RunFolder.open(tmp_path / "stopped").read_run()
    assert (record.status, record.error["kind"]) == ("interrupted", "KeyboardInterrupt")


def test_dry_run_shows_settings_and_preflight_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *FAST, "--dry-run", *under(tmp_path / "runs", "dry")]) == 0
    out = capsys.readouterr().out
    assert "learning_rate: 0.0002" in out
    assert "Preflight: 4 problems" in out
    assert not (tmp_path / "runs").exists()


def test_preflight_stops_a_run_without_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *FAST, "--trl.max_completion_length", "3", *under(tmp_path / "runs", "none")]) == 1
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert "100% of responses reach max_completion_length 3" in captured.err
    assert said.count("of responses reach max_completion_length") == 1  # once, with one example
    assert said.count("For example") == 1
    assert not (tmp_path / "runs").exists()


TINY = [
    "--preset", "demo", "--trl.max_steps", "3", "--trl.per_device_train_batch_size", "8", "--trl.save_strategy", "no",
    "--evaluate.sources", "test", "--evaluate.num-samples", "1", "--evaluate.pass_at_k", "1",
    "--evaluate.max-problems", "1",
    "--evaluate.eval_on_start", "False", "--preflight.mode", "off", "--watchdog.steps", "2",
]  # fmt: skip


def test_watchdog_stops_a_run_whose_responses_are_all_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    collapsed = ["--trl.max_completion_length", "3", "--watchdog.mode", "stop"]
    assert main(["train", *TINY, *collapsed, *under(tmp_path, "cut")]) == 1
    assert "For 2 steps (1 to 2) every response was cut off" in capsys.readouterr().err
    folder = RunFolder.open(tmp_path / "cut")
    assert folder.read_run().status == "failed"
    assert open_run(folder.path).steps == [1, 2]  # what was seen is there to be read
    assert open_run(folder.path).read_json("watchdog.json")["kind"] == "cut off"


def test_what_exceeds_the_context_is_refused_or_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [("1+1=", 3), ("1+1=", 600), ("1+" * 300 + "1=", 1)]
    made = [{"prompt": prompt, "answer": "2", "expert_solution": "2" * length} for prompt, length in rows]
    source = ["--dry-run", "--data.source", write_jsonl(tmp_path / "long.jsonl", made)]
    assert main(["train", *TINY, *source]) == 1
    assert "1 of 3 prompts are too long. Drop them with --data.max_prompt_tokens" in capsys.readouterr().err
    source = ["--dry-run", "--data.source", write_jsonl(tmp_path / "long.jsonl", made[:2])]
    assert main(["train", *TINY, *source]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Left out: 1 expert solutions that with their prompt exceed the model's context" in out


def test_a_full_disk_in_torch_save_is_a_sentence(tmp_path):
    with pytest.raises(RecordError, match="is the disk full"), _status_of(RunFolder(tmp_path), print):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
    with pytest.raises(RuntimeError, match="another"), _status_of(RunFolder(tmp_path), print):
        raise RuntimeError("another")


def test_a_failed_run_says_why_and_where(tmp_path):
    folder = RunFolder.create(tmp_path, "run")
    folder.write_run(seed=0, command=["gar"], config={}, config_text="", data_hash=None)
    folder.append_metrics({"step": 7})
    with pytest.raises(ValueError, match="Invalid learning rate"), _status_of(folder, print):
        torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=-1)
    record = folder.read_run()
    assert (record.status, record.error["after_step"]) == ("failed", 7)
    assert record.error["text"] == "ValueError: Invalid learning rate: -1"
    assert re.search(r"gar/train/run.py:\d+ in _status_of, torch/optim/\w+.py:\d+ in __init__", record.error["place"])
    (sentence,) = open_run(folder.path, strict=False).unfinished
    assert f"(ValueError: Invalid learning rate: -1; {record.error['place']})" in sentence
    folder.metrics_path.write_text('{"step": 7}\n{"st\n')  # none of its metrics counts
    with pytest.raises(LostRankError), _status_of(folder, print):
        raise LostRankError("rank 0 of 2 has lost another rank")
    record = folder.read_run()
    assert (record.status, record.error["kind"], record.error["after_step"]) == ("interrupted", "LostRankError", 0)
    folder.update_run(status="running")
    assert folder.read_run().error is None


def test_train_asks_for_the_format_of_the_responses(tmp_path):
    """A model of one's own is told the format; what ships with the package knows it."""
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "answer": "2", "expert_solution": "2"}\n')
    own = {"data": {"source": str(tmp_path / "rows.jsonl")}, "model": {"path": "own"}}
    for changes, template in (
        (own, "think-answer"),
        (own | {"verify": {"format": "boxed"}}, "boxed"),
        (own | {"verify": {"format": "none"}}, "plain"),
        (own | {"data": own["data"] | {"template": "plain"}}, "plain"),
        (own | {"model": {}}, "plain"),
        ({}, "plain"),
    ):
        assert with_template(make_config(changes)).data.template == template
    assert make_config(read_preset("demo")).data.template == make_config(read_preset("bench")).data.template == "plain"
