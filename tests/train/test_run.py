"""The main job as a user runs it, the checks of a resume, and how both end. `tests/faults` kills and damages runs."""

import json
import re
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.console import Group as Lines
from rich.markup import escape
from rich.text import Text
from safetensors.torch import save_file

from gar.cli.main import main
from gar.config import make_config, read_preset, with_template
from gar.data import load_problems
from gar.errors import ConfigError, DataError, LostRankError, RecordError
from gar.evaluation.folder import evaluation_folders
from gar.integrations.trl.arguments import grpo_arguments
from gar.models.embedded import load_embedded
from gar.models.load import load_policy
from gar.records import RunFolder, open_run
from gar.records.checkpoints import find_checkpoint, seal_checkpoint
from gar.response import Response
from gar.settings import ModelSettings
from gar.train.inputs import RunInputs, show
from gar.train.resume import resume_point, resumed_config, status_of
from gar.train.run import dry_run
from tests.support.damage import edit, flip
from tests.support.errors import raises
from tests.support.files import write_jsonl
from tests.support.runs import assert_equal_runs, begun_run, contents, sha256sum
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
        sets = open_run(finished.path).evaluations[name]
        assert [*sets] == ["test", "harder"]
        assert {*sets["test"].pass_at} == {"1", "4"}
        correct = Counter(
            (row["set_name"], row["problem_id"])
            for row in open_run(finished.path).samples(name).to_pylist()
            if row["verified"] and row["well_formatted"]
        )
        counts = {(part, id): number for part in sets for id, number in sets[part].num_correct.items()}
        assert correct == Counter(counts)
    assert (finished.path / "figures" / "learning-curve.png").stat().st_size > 10_000


def test_the_evaluations_of_a_run_are_folders_of_gar_eval(finished: RunFolder, tmp_path: Path, capsys):
    before, after = (str(finished.path / "evaluation" / moment) for moment in ("before", "after"))
    assert main(["eval", "table", before, after]) == 0
    assert "| harder pass@1 | after | " in capsys.readouterr().out
    assert main(["eval", "score", after]) == 1
    assert "belongs to the run" in " ".join(capsys.readouterr().err.split())
    copied = Path(shutil.copytree(f"{after}/test", tmp_path / "copied"))
    whole = json.loads((copied / "metrics.json").read_text())
    assert main(["eval", "score", str(copied), "--pass-at-k", "1", "4", "--allow-degenerate"]) == 0
    assert json.loads((copied / "metrics.json").read_text()) == whole


def test_a_saved_model_with_a_flipped_byte_gives_no_number(finished: RunFolder, tmp_path: Path, capsys):
    run = RunFolder(Path(shutil.copytree(finished.path, tmp_path / "run")))
    for name in ("model", "checkpoints/checkpoint-4"):
        path = run.path / name
        load_policy(ModelSettings(path=str(path)))
        flip(path / "model.safetensors", -5)
        load_policy(ModelSettings(path=str(shutil.copytree(path, tmp_path / f"copy of {path.name}"))))  # is the user's
        for use in (
            lambda path=path: load_policy(ModelSettings(path=str(path))),
            lambda path=path: load_policy(ModelSettings(path=f"{path}/../../{path.parent.name}/{path.name}/")),
        ):
            with raises(RecordError, "damage", f"{name}/model.safetensors"):
                use()
    model, out = str(run.path / "model"), str(tmp_path / "out")
    for command in (
        ["eval", "run", model, "--benchmark", "arithmetic", "--limit", "1", "--samples", "1", "--out", out],
        ["train", *FAST, *under(tmp_path, "next"), "--model.path", model],
    ):
        capsys.readouterr()
        assert main(command) == 1
        assert "model/model.safetensors is not what was written" in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(run.path), "--token-shares", "--out", str(tmp_path / "page.html")]) == 0
    assert "no further token shares" in (tmp_path / "page.html").read_text()
    shutil.copy(run.path / "model" / "config.json", run.path / "model" / "generation_config.json.new")
    (run.path / "model" / "model.safetensors").write_bytes((finished.path / "model" / "model.safetensors").read_bytes())
    with raises(RecordError, "damage", "model/generation_config.json.new is not listed"):
        load_policy(ModelSettings(path=model))


def test_dry_run_shows_settings_and_preflight_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of data that partly exceed the context."""
    rows = [("1+1=", 3), ("1+1=", 600), ("1+" * 300 + "1=", 1)]
    made = [{"prompt": prompt, "answer": "2", "expert_solution": "2" * length} for prompt, length in rows]
    source = ["--dry-run", "--preflight.mode", "warn", "--data.source", write_jsonl(tmp_path / "long.jsonl", made)]
    assert main(["train", *FAST, *source, *under(tmp_path / "runs", "dry")]) == 1
    assert "1 of 3 prompts are too long. Drop them (gar train: --data.max_prompt_tokens)" in capsys.readouterr().err
    write_jsonl(tmp_path / "long.jsonl", made[:2])
    assert main(["train", *FAST, *source, *under(tmp_path / "runs", "dry")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "learning_rate: 0.0002" in out
    assert "Note: the embedded model knows its own arithmetic alone. Name yours: --model.path" in out
    assert "Preflight: 2 problems" in out
    assert "1 exceed the model's context with their prompt" in out
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_in_a_slow_preflight_shows_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gar.train.inputs._LARGE_ON_CPU", 0)  # the embedded model counts as large
    said: list[str] = []

    def say(shown):
        console = Console(width=120)
        with console.capture() as captured:
            console.print(shown)
        said.append(captured.get())
        if "4 of 8 problems after" in said[-1]:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        dry_run(make_config(read_preset("demo")), say=say)
    assert "about" in next(text for text in said if "2 of 8 problems after" in text)
    assert "Preflight: 4 problems, 4 responses each" in said[-1]


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


def test_a_full_disk_under_what_libraries_write_is_a_sentence(tmp_path):
    model, tokenizer = load_embedded()
    writers = {
        "optimizer.pt": lambda path: torch.save(model.state_dict(), path),
        "tokenizer.json": lambda path: tokenizer.backend_tokenizer.save(str(path)),
        "model.safetensors": lambda path: save_file({"weight": torch.ones(9)}, path),
    }
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, write in writers.items():
        run = begun_run(tmp_path, name)
        with raises(RecordError), status_of(run, print), run.new_folder("model") as staged:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
            try:
                write(staged / name)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (run.read_run().status, (run.path / "model").exists()) == ("failed", False)


def test_a_failed_run_says_why_and_where(tmp_path):
    folder = begun_run(tmp_path)
    folder.append_metrics({"step": 7})
    with pytest.raises(ValueError), status_of(folder, print):  # noqa: PT011
        torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=-1)
    record = folder.read_run()
    assert record.status == "failed"
    assert record.error["text"] == "ValueError: Invalid learning rate: -1"
    assert re.search(r"gar.train.resume:\d+ in status_of, torch.optim.\w+:\d+ in __init__", record.error["place"])
    (sentence,) = open_run(folder.path).unfinished
    assert f"(ValueError: Invalid learning rate: -1; {record.error['place']})" in sentence
    with pytest.raises(LostRankError), status_of(folder, print):
        raise LostRankError("rank 0 of 2 has lost another rank")
    record = folder.read_run()
    assert (record.status, record.error["kind"]) == ("interrupted", "LostRankError")
    folder.update_run(status="running")
    assert folder.read_run().error is None


def test_an_interrupted_run_says_how_to_go_on(trained: RunFolder):
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt) as caught, status_of(trained, said.append):
        raise KeyboardInterrupt
    assert caught.value.args == ("interrupted",)  # which `gar` prints
    assert f"last whole checkpoint is checkpoint-4. Resume with: gar train --resume {trained.path}" in said[0]
    record = trained.read_run()
    assert (record.status, record.error["kind"]) == ("interrupted", "KeyboardInterrupt")


def resumed(run: RunFolder, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """Exit status of a resume, and what it printed."""
    capsys.readouterr()
    status = main(["train", "--resume", str(run.path), *flags])
    captured = capsys.readouterr()
    return status, " ".join((captured.out + captured.err).split())


def test_a_resume_drops_what_the_killed_process_wrote_after_the_checkpoint(finished, trained, capsys):
    trained.append_metrics({"step": 5, "reward": 0.5})
    status, said = resumed(trained, capsys)
    assert status == 0, said
    assert_equal_runs(trained, finished)


def test_records_stay_until_the_checkpoint_is_loaded(trained, capsys):
    newest = trained.checkpoints / "checkpoint-4"
    (newest / "rng_state.pth").write_bytes(b"no random state")
    (newest / "optimizer.pt").write_bytes(b"no optimizer")
    seal_checkpoint(trained, 4)
    before = contents(trained.path, "run.json")  # which says how the run ended
    status, said = resumed(trained, capsys)
    assert (status, "checkpoint-4: cannot be loaded: " in said) == (1, True)
    assert contents(trained.path, "run.json") == before


def test_a_resume_without_room_for_its_first_write_cuts_nothing(trained, capsys, monkeypatch):
    trained.append_metrics({"step": 5, "reward": 0.5})
    before = contents(trained.path, "run.json")

    def full(*_: object) -> None:
        raise RecordError("run.json: cannot be written. What was written before is intact.")

    monkeypatch.setattr(RunFolder, "_write_run", full)
    status, said = resumed(trained, capsys)
    assert (status, "What was written before is intact." in said) == (1, True)
    assert contents(trained.path, "run.json") == before


def test_a_line_of_progress_is_one_line_of_a_file(capsys: pytest.CaptureFixture[str]):
    show(f"[yellow]{'long ' * 40}[/] {escape('[kept]')} 16 \x1b[2J")
    show(Lines(Text("WARN: " + "long " * 40), Text("second")))
    assert capsys.readouterr().out == f"{'long ' * 40} [kept] 16 \\x1b[2J\nWARN: {'long ' * 40}\nsecond\n"


def test_the_last_step_is_logged_whatever_the_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    interval = ["--trl.max_steps", "3", "--trl.logging_steps", "2", "--evaluate.sources", "--preflight.mode", "off"]
    assert main(["train", *FAST, *interval, *under(tmp_path, "run")]) == 0
    run = RunFolder.open(tmp_path / "run")
    assert [row["step"] for row in open_run(run.path).metrics] == [2, 3]
    assert run.read_run().summary["steps"] == 3
    card = (run.path / "model" / "README.md").read_text()
    assert "on `arithmetic` for 3 steps" in card
    assert "trl.max_steps: 3" in card
    assert find_checkpoint(run, num_ranks=1).step == 3
    assert sha256sum(run.path) == ""


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


def test_lost_records_are_made_again_from_the_checkpoint_before_or_are_an_error(trained):
    (trained.path / "rollouts" / "steps-000003-000004.parquet").write_bytes(b"PAR1")
    record = trained.read_run()
    trained._write_run(replace(record, versions={**record.versions, "torch": "1.0"}))
    point = partial(resume_point, trained, resumed_config(trained), num_ranks=1)
    found, changes = point(data_hash=record.data_hash)
    assert (found.step, changes) == (2, {})
    assert "checkpoint-4 cannot be resumed from:" in found.notes[0]
    assert found.notes[1].startswith("Package versions have changed: torch was '1.0', is '2.")
    with raises(DataError, "other-data"):
        point(data_hash="e" * 64)
    _, accepted = point(data_hash="e" * 64, allow_config_change=True)
    assert accepted == {"data_hash": [record.data_hash, "e" * 64]}
    edit(trained.path / "metrics.jsonl", '"step": 2,', '"step": 1,')
    with raises(RecordError, "no-checkpoint"):
        point(data_hash=record.data_hash)


def test_a_run_keeps_its_settings_unless_changes_are_accepted(trained: RunFolder):
    path, data_hash = trained.path / "config.yaml", trained.read_run().data_hash
    whole, config = path.read_text(), resumed_config(trained)
    assert config.model_dump(mode="json") == trained.read_run().settings
    changes: tuple[Callable[[str], str], ...] = (
        lambda text: "",
        lambda text: text[: text.index("reward:")],
        lambda text: text[: text.index("max_steps")],
        lambda text: text.replace("learning_rate: 0.0002", "learning_rate: 0.02"),
    )
    for change in changes:
        path.write_text(change(whole))
        for allowed in (False, change is not changes[-1]):  # nothing accepts a file that was cut off
            with raises(ConfigError, "other-settings"):
                resumed_config(trained, allow_config_change=allowed)
    assert resumed_config(trained, allow_config_change=True).trl["learning_rate"] == 0.02
    optimizers = {"learning_rate": 0.02, "weight_decay": 0.1, "adam_beta1": 0.5, "adam_beta2": 0.5}
    for name, value in {**optimizers, "adam_epsilon": 1e-3, "optim": "sgd"}.items():
        changed = config.model_copy(update={"trl": config.trl | {name: value}})
        with raises(ConfigError, "in-checkpoint", f"trl.{name}"):
            resume_point(trained, changed, data_hash=data_hash, num_ranks=1, allow_config_change=True)


@pytest.mark.slow
def test_accepted_changes_are_recorded(trained, capsys):
    edit(trained.path / "config.yaml", "max_steps: 4", "max_steps: 5")
    status, said = resumed(trained, capsys)
    assert (status, "trl.max_steps was 4, is 5" in said) == (1, True)
    assert resumed(trained, capsys, "--allow-config-change")[0] == 0
    (entry,) = trained.read_run().overrides
    assert (entry["changes"], entry["after_step"]) == ({"trl.max_steps": [4, 5]}, 4)
    assert [row["step"] for row in open_run(trained.path).metrics] == [1, 2, 3, 4, 5]
    assert resumed_config(trained).trl["max_steps"] == 5  # from now on these are the run's settings


def test_a_model_of_ones_own_is_told_the_format():
    own = {"data": {"source": "rows.jsonl"}, "model": {"path": "own"}}
    for changes, template in (
        (own, "think-answer"),
        (own | {"verify": {"format": "none"}}, "plain"),
        (own | {"model": {}}, "plain"),
        ({}, "plain"),
    ):
        assert with_template(make_config(changes)).data.template == template


# Inputs.


def test_what_a_run_cannot_train_on_is_an_error_before_the_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("gar.train.inputs.load_policy", lambda *_: pytest.fail("loaded"))
    bare = write_jsonl(tmp_path / "bare.jsonl", [{"prompt": "3+4=", "answer": 7}])
    for changes, code in (
        ({"trl": {"per_device_train_batch_size": 2**20}}, "few-problems"),
        ({"data": {"source": bare}, "trl": {"per_device_train_batch_size": 8}}, "no-anchors"),
        ({"evaluate": {"sources": [bare], "max_problems": 1}, "data": {"prompt_field": "question"}}, None),
    ):
        config = make_config({"data": {"template": "plain"}} | changes)
        with raises(DataError, code):
            RunInputs(config, *grpo_arguments(config), print)


def test_an_evaluation_is_made_again_where_its_problems_have_changed_under_their_ids(tmp_path):
    trl = {"chat_template_kwargs": {"enable_thinking": False}}
    values = {"data": {"template": "plain", "max_problems": 64}, "evaluate": {"sources": ["test"]}, "trl": trl}
    config = make_config(values)
    inputs = RunInputs(config, *grpo_arguments(config), str)
    asked: list[list[str]] = []

    def sampled(name: str, problems: Any) -> list[list[Response]]:
        asked.append([problem.answer for problem in problems])
        return [[Response(text="7")] * config.evaluate.num_samples]

    vars(inputs)["_sampled"] = sampled
    folder = RunFolder.create(tmp_path, "run")
    for answer in ("7", "7", "8"):
        path = write_jsonl(tmp_path / "problems.jsonl", [{"id": "a", "prompt": "3+4=", "answer": answer}])
        inputs.evaluation_sets = {"test": load_problems(path)}
        inputs.evaluate(folder, "before", step=0)
    assert asked == [["7"], ["8"]]
    (evaluation,) = evaluation_folders(folder.path / "evaluation/before")
    identity = evaluation.identity()
    assert identity["prompt"]["chat_template_kwargs"] == '{"enable_thinking": false}'
    assert identity["verifier"] is None
