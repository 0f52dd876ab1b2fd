"""What errors say. Other tests assert type and code; the words stand in golden/messages.txt alone.

Rewrite that file with `GAR_REWRITE_GOLDEN=1 pytest tests/test_messages.py`, and read the difference.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig

import gar
from gar.cli.main import main
from gar.comparison import read_comparison
from gar.comparison.compare import Comparison
from gar.config import make_config, read_config
from gar.data import load_problems
from gar.errors import GarError
from gar.evaluation.benchmark_sets import load_benchmark
from gar.integrations.trl.deciding import find_decider
from gar.models.embedded import load_embedded
from gar.records import RunFolder, open_run
from gar.records.lock import writer_lock
from gar.records.sums import check_sum, file_sum
from gar.settings import SourceSettings
from gar.train.checks import check_before_loading
from gar.types import Problem
from gar.verify import Verifier

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
ROW = {"prompt": "1+1=", "answer": "2"}
TOO_FEW = {"sources": ["test"], "num_samples": 4, "pass_at_k": [8]}


def taken() -> object:
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/run.json").touch()
    return RunFolder.create("runs", "mine")


def rows(*values: Any, **options: Any) -> Callable[[], object]:
    """Load problems from rows, or from lines as they stand."""

    def load() -> object:
        lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
        Path("rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return load_problems("rows.jsonl", options=SourceSettings(**options))

    return load


def checked(**values: Any) -> None:
    """The checks before anything is loaded."""
    check_before_loading(make_config(values))


def written(name: str, text: str, read: Callable[[str], object]) -> None:
    Path(name).write_text(text)
    read(name)


def damaged(change: Callable[[Path], object]) -> None:
    """Compare a file with its checksum, after a change."""
    folder = Path("run")
    folder.mkdir(exist_ok=True)
    (folder / "a.json").write_text("{}")
    sums = {"a.json": file_sum(folder / "a.json")}
    change(folder / "a.json")
    check_sum(folder, "a.json", sums)


def locked() -> None:
    with writer_lock(Path.cwd()), writer_lock(Path.cwd()):
        pass


def command(*words: str) -> None:
    """A command whose error is printed, and not raised."""
    with redirect_stderr(StringIO()) as said:
        status = main([*words])
    raise GarError(f"status {status}: {said.getvalue().strip()}")


def trainer(**values: Any) -> None:
    model, tokenizer = load_embedded()
    args = GRPOConfig("out", use_cpu=True, bf16=False, report_to="none")
    given = {"model": model, "processing_class": tokenizer, "args": args, "train_dataset": [ROW] * 8}
    gar.GARTrainer(**(given | values))


def scores(groups: Any, **values: Any) -> None:
    gar.GARScorer(*load_embedded(), **values).score(groups)


def group(**values: Any) -> Any:
    given = {"prompt": "1+2=", "responses": ["3", "4"], "anchors": ["3"], "eligible": [True, False]}
    return gar.ResponseGroup(**(given | values))


def verified(*values: Any) -> None:
    Verifier(format="none").verify(*values)


def format_reward() -> None: ...


def accuracy_reward(completions: list) -> None: ...


TRIGGERS: dict[str, Callable[[], object]] = {
    # settings
    "an unknown section": partial(make_config, {"rewards": {}}),
    "an unknown key": partial(make_config, {"reward": {"bonus_wieght": 1}}),
    "a value of the wrong kind": partial(make_config, {"reward": {"bonus_weight": "much"}}),
    "a value out of range": partial(make_config, {"advantage": {"min_std": -1}}),
    "an unknown method": partial(make_config, {"method": "gar-gpro"}),
    "an unknown field of TRL": partial(checked, trl={"lerning_rate": 1}),
    "settings that do not go together": partial(checked, method="grpo", adapter={"dropout": 0.5}),
    "a group of one": partial(checked, trl={"num_generations": 1}),
    "an unknown signal": partial(make_config, {"signal": {"kind": "gradients"}}),
    "an unknown template": partial(checked, data={"template": "chatml"}),
    "tags that are parts of each other": partial(checked, verify={"tags": {"think_open": "<t>", "answer_open": "<t>"}}),
    "more samples than there are": partial(checked, evaluate=TOO_FEW),
    "a field that belongs to gar": partial(checked, trl={"output_dir": "x"}),
    "three mistakes": partial(checked, data={"source": "a.jsonl"}, evaluate=TOO_FEW, trl={"num_generations": 1}),
    "no configuration file": partial(read_config, "missing.yaml"),
    "a key twice": partial(written, "twice.yaml", "seed: 1\nseed: 2\n", read_config),
    "a plugin that is not there": partial(make_config, {"plugins": ["no.such.module"]}),
    # data
    "no file": partial(load_problems, "missing.jsonl"),
    "an empty file": rows(),
    "a line that is no JSON": rows(ROW, "{"),
    "a line that is no object": rows(ROW, "3"),
    "missing columns": rows({"question": "1+1="}),
    "an id twice": rows({**ROW, "id": "a"}, {**ROW, "id": "a"}),
    "no row with an answer": rows({**ROW, "answer": ""}),
    "a prompt that is no text": rows({**ROW, "prompt": 3}),
    "an expert solution that is no text": rows({**ROW, "expert_solution": {"a": 1}}),
    "no column of that name": rows(ROW, expert_fields=("solution",)),
    # reward functions
    "several reward functions": partial(find_decider, [format_reward, accuracy_reward], None),
    "a reward model alone": partial(find_decider, ["org/reward-model"], None),
    "no such reward function": partial(find_decider, [format_reward], "accuracy_reward"),
    "reward functions of one name": partial(find_decider, [format_reward, format_reward], None),
    # arguments of the wrong type, at every public entry
    "expert_fields that is one text": partial(trainer, expert_fields="sol"),
    "reward= that is a dict": partial(trainer, reward={"bonus_wieght": 1.0}),
    "signal= that is a dict": partial(trainer, signal={"kind": "gradients"}),
    "advantage= that is a number": partial(trainer, advantage=1),
    "verifier= that is a text": partial(trainer, verifier="boxed"),
    "method= that is a number": partial(trainer, method=3),
    "train_dataset= that is a path": partial(trainer, train_dataset="ok.jsonl"),
    "watchdog= that is a text": partial(trainer, watchdog="stop"),
    "args= that is a dict": partial(trainer, args={"max_steps": 1}),
    "on_rollouts= that is a text": partial(trainer, on_rollouts="print"),
    "a problem with a number for its prompt": partial(trainer, train_dataset=[Problem(id="a", prompt=3, answer="1")]),
    "a problem with a text for its solutions": partial(
        trainer, train_dataset=[Problem(id="a", prompt="3", answer="1", anchors="ab")]
    ),
    "responses that are one text": partial(scores, [group(responses="34")]),
    "solutions that are one text": partial(scores, [group(anchors="12")]),
    "a response that is None": partial(scores, [group(responses=["3", None])]),
    "one group for a list": partial(scores, group()),
    "rewards in place of judgments": partial(scores, [group(eligible=[1.0, -1.0])]),
    "a generator of groups": partial(scores, (group() for _ in "ab")),
    "an iterator of solutions": partial(scores, [group(anchors=iter(["3"]))]),
    "a group that is a dict": partial(scores, [{"prompt": "1"}]),
    "a scorer's verifier that is a text": partial(scores, [], verifier="boxed"),
    "a scorer's reward that is a dict": partial(scores, [], reward={}),
    "a scorer's tokenizer that is missing": lambda: gar.GARScorer(load_embedded()[0], None),
    "responses to verify that are one text": partial(verified, "7", "7"),
    "responses to verify that are an iterator": partial(verified, map(str, [7]), ["7"]),
    "a response to verify that is None": partial(verified, [None], ["7"]),
    "a gold answer that is a number": partial(verified, ["7"], [7]),
    "a grader that is a number": partial(Verifier, custom=3),
    "no worker": partial(Verifier, num_workers=0),
    "a source that is a number": partial(load_problems, 3),
    "an unknown key of a section": partial(gar.RewardSettings, bonus_wieght=1),
    "settings that are a list": partial(make_config, ["a"]),
    # graders
    "no grader": partial(Verifier, custom="nowhere:grade"),
    "a grader without a module": partial(Verifier, custom="grade"),
    # records
    "no run": partial(open_run, "missing"),
    "no run folder": partial(RunFolder.open, "missing"),
    "a run's name is taken": taken,
    "a run with a name of several parts": partial(make_config, {"records": {"name": "a/b"}}),
    "a file that was changed": partial(damaged, lambda path: path.write_text("[]")),
    "a file that is gone": partial(damaged, Path.unlink),
    "a folder that is being written": locked,
    # evaluation and comparison
    "no benchmark": partial(load_benchmark, "aime26"),
    "no comparison": partial(read_comparison, "missing.yaml"),
    "a comparison without rows": partial(written, "rows.yaml", "{name: a, base: bench, runs: []}", read_comparison),
    "a comparison with an unknown method": partial(
        written, "method.yaml", "{name: a, base: bench, runs: [gpro], seeds: [0]}", Comparison
    ),
    # commands
    "an unknown command": partial(command, "trian"),
    "no folder to report": partial(command, "report", "missing", "--out", "page.html"),
    "no evaluation to show": partial(command, "eval", "table", "missing"),
    "no file to check": partial(command, "data", "check", "missing.jsonl"),
    "no run to resume": partial(command, "train", "--resume", "missing"),
    "no preset": partial(command, "train", "--preset", "dmo"),
}


def messages() -> Iterator[str]:
    """Each trigger's type, code and text."""
    for name, trigger in TRIGGERS.items():
        with pytest.raises(GarError) as caught:
            trigger()
        text = re.sub(r"process \d+ on \S+, since [^.]+", "process 1 on here, since now", str(caught.value))
        text = re.sub(r" at 0x[0-9a-f]+", " at 0x1", text)
        yield f"# {name}\n{type(caught.value).__name__} {caught.value.code}\n{text}\n"


def test_messages_are_those_of_the_golden_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = "\n".join(messages()).replace(str(tmp_path), "HERE")
    if os.environ.get("GAR_REWRITE_GOLDEN"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
