"""The main job as a user runs it, what a resume verifies, and how both end. `tests/faults` kills and damages runs."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gar.cli.main import main
from gar.config import RunConfig, dump_config, make_config, parse_yaml, read_preset, with_template
from gar.errors import ConfigError, DataError, LostRankError, RecordError
from gar.records import RunFolder, open_run
from gar.records.checkpoints import MANIFEST, seal_checkpoint
from gar.records.run_record import record_text
from gar.train.resume import read_resumption
from gar.train.run import _status_of
from tests.support.errors import raises
from tests.support.files import write_jsonl
from tests.support.ranks import FORKSERVER
from tests.support.runs import assert_equal_runs
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


def gar_in(said: Path, arguments: list[str]) -> None:
    """`gar` in a process of its own, with all that it says in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.exit(main(arguments))


def test_interrupt_says_how_to_go_on_and_keeps_the_checkpoint(tmp_path: Path):
    said = tmp_path / "said"
    process = FORKSERVER.Process(target=gar_in, args=(said, ["train", *FAST, *under(tmp_path, "stopped")]))
    process.start()
    while not (tmp_path / "stopped" / "checkpoints" / "checkpoint-2" / "manifest.jsonl").exists():
        assert process.is_alive(), said.read_text()
        time.sleep(0.005)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    text = said.read_text()
    assert process.exitcode == 130
    assert "last whole checkpoint is checkpoint-2" in " ".join(text.split())
    assert "Traceback" not in text
    assert "\ngar train: interrupted\n" in text
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
    with raises(RecordError), _status_of(RunFolder(tmp_path), print):
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


def resumed(run: RunFolder, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """Exit status of a resume, and what it printed."""
    capsys.readouterr()
    status = main(["train", "--resume", str(run.path), *flags])
    captured = capsys.readouterr()
    return status, " ".join((captured.out + captured.err).split())


def content(run: RunFolder) -> dict[str, bytes]:
    """Every file but run.json, which says how the run ended."""
    files = (path for path in run.path.rglob("*") if path.is_file() and path != run.run_path)
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files}


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_a_resume_after_damage_ends_like_the_whole_run(finished, trained, capsys):
    (trained.checkpoints / "checkpoint-4" / "optimizer.pt").write_bytes(b"cut")
    path = trained.path / "evaluation" / "before.json"
    values = json.loads(path.read_text())
    values["sets"]["test"]["problems"][0]["num_correct"] += 1
    path.write_text(json.dumps(values))
    status, said = resumed(trained, capsys)
    assert status == 0
    assert "checkpoint-4 cannot be resumed from: optimizer.pt is not what was written" in said
    assert "after step 2" in said
    assert "before.json is not what was written" in said
    assert "The policy is evaluated again." in said
    assert_equal_runs(trained, finished)
    status, said = resumed(trained, capsys)
    assert (status, "this run is finished" in said) == (1, True)


def test_records_stay_until_the_checkpoint_is_loaded(trained, capsys):
    newest = trained.checkpoints / "checkpoint-4"
    (newest / "rng_state.pth").write_bytes(b"no random state")
    (newest / "optimizer.pt").write_bytes(b"no optimizer")
    (newest / MANIFEST).unlink()
    seal_checkpoint(trained, 4)
    before = content(trained)
    status, said = resumed(trained, capsys)
    assert (status, "checkpoint-4: cannot be loaded: " in said) == (1, True)
    assert content(trained) == before


def test_edited_settings_are_refused_unless_accepted_and_then_recorded(trained, capsys):
    edit(trained.path / "config.yaml", "max_steps: 4", "max_steps: 5")
    status, said = resumed(trained, capsys)
    assert (status, "trl.max_steps was 4, is 5" in said) == (1, True)
    assert resumed(trained, capsys, "--allow-config-change")[0] == 0
    record = trained.read_run()
    assert [entry["changes"] for entry in record.overrides] == [{"trl.max_steps": [4, 5]}]
    assert record.overrides[0]["after_step"] == 4
    assert [row["step"] for row in open_run(trained.path).metrics] == [1, 2, 3, 4, 5]
    assert read_resumption(trained).changes == {}  # from now on these are the run's settings


@pytest.mark.slow
def test_a_run_counted_in_epochs_trains_no_step_too_many(tmp_path, capsys):
    """Its last step stands in no setting."""
    epochs = ["--trl.max_steps", "-1", "--trl.num_train_epochs", "2", "--data.max_problems", "4"]
    assert main(["train", *FAST, *epochs, *under(tmp_path, "run")]) == 0
    run = RunFolder(tmp_path / "run")
    rows = open_run(run.path).metrics
    shutil.rmtree(run.path / "model")
    run.update_run(status="interrupted")
    assert resumed(run, capsys)[0] == 0
    assert open_run(run.path).metrics == rows


def test_settings_that_a_checkpoint_holds_are_not_changed(trained):
    edit(trained.path / "config.yaml", "learning_rate: 0.0002", "learning_rate: 0.02")
    resumption = read_resumption(trained, allow_config_change=True)
    with pytest.raises(ConfigError, match=r"trl\.learning_rate cannot be overridden: .* checkpoint-4"):
        resumption.with_checkpoint(1)


def test_lost_records_are_made_again_from_the_checkpoint_before_or_are_an_error(trained):
    trained.rollouts_path(3).write_bytes(b"PAR1")
    resumption = read_resumption(trained).with_checkpoint(1)
    assert resumption.step == 2
    assert "checkpoint-4 cannot be resumed from:" in resumption.notes[0]
    edit(trained.metrics_path, '"step": 2,', '"step": 1,')
    with pytest.raises(RecordError, match=r"checkpoint-2 .*: metrics\.jsonl is not what was written"):
        read_resumption(trained, allow_config_change=True).with_checkpoint(1)


@pytest.fixture
def begun(tmp_path: Path) -> RunFolder:
    """A run that has its settings and nothing else."""
    config = make_config({"trl": {"learning_rate": 1e-6, "max_steps": 5}})
    run = RunFolder.create(tmp_path, "begun")
    values = config.model_dump(mode="json")
    run.write_run(seed=0, command=["gar"], config=values, config_text=dump_config(config), data_hash="d" * 64)
    return run


def test_settings_come_back_as_they_were(begun: RunFolder):
    resumption = read_resumption(begun)
    assert (resumption.changes, resumption.notes) == ({}, [])
    assert resumption.config.trl["learning_rate"] == 1e-6
    assert parse_yaml(dump_config(RunConfig())) == RunConfig().model_dump(mode="json")


def test_cut_settings_are_an_error_that_nothing_overrides(begun: RunFolder):
    path = begun.path / "config.yaml"
    whole = path.read_text()
    changes: dict[str, Callable[[str], str]] = {
        "no settings in it. Was the file emptied or cut off?": lambda text: "",
        "settings are missing, among them reward.bonus_weight": lambda text: text[: text.index("reward:")],
        "among them trl.max_steps": lambda text: text[: text.index("max_steps")],
        "not valid YAML": lambda text: text.replace("reward:", "reward: ["),
        r"reward\.bonus_weight must be .*many": lambda text: text.replace("bonus_weight: 0.5", "bonus_weight: many"),
    }
    for words, change in changes.items():
        path.write_text(change(whole))
        for allowed in (False, True):
            with pytest.raises(ConfigError, match=words):
                read_resumption(begun, allow_config_change=allowed)


def test_changed_data_are_refused_unless_accepted(begun: RunFolder):
    assert read_resumption(begun).with_data("d" * 64).changes == {}
    with raises(DataError):
        read_resumption(begun).with_data("e" * 64)
    changed = read_resumption(begun, allow_config_change=True).with_data("e" * 64)
    assert changed.changes == {"data_hash": ["d" * 64, "e" * 64]}


def test_other_versions_of_packages_are_named(begun: RunFolder):
    record = begun.read_run()
    begun.run_path.write_text(record_text(replace(record, versions={**record.versions, "torch": "1.0"})))
    (note,) = read_resumption(begun).notes
    assert note.startswith("Package versions have changed: torch was 1.0, is 2.")
