"""The task of Inspect: what it asks and how it grades, under its own loop, mock model and reducers."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gar.errors import ConfigError
from gar.evaluation.folder import EvaluationFolder, append_lines
from gar.evaluation.grading import score
from gar.evaluation.inspect_task import benchmark_task, response_text
from gar.evaluation.job import GenerateJob, ScoreSettings
from gar.evaluation.sampling import known_identity, load_sets, problem_lines
from tests.evaluation.published import IMO, MATH, MMLU_PRO, write_csv, write_jsonl

pytestmark = pytest.mark.filterwarnings(  # Inspect leaves streams open
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

NUM_SAMPLES = 6
KS = (1, 2, 3, 6)


def test_import_needs_no_inspect_ai() -> None:
    code = "import sys; sys.modules['inspect_ai'] = None; import gar.evaluation.inspect_task"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_benchmark_task_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(ConfigError, match=r"inspect-ai, which is not installed: pip install 'gar-rl\[inspect\]'"):
        benchmark_task("arithmetic")


def test_response_text_puts_the_thinking_part_back() -> None:
    thinking, text, other = (
        SimpleNamespace(type="reasoning", reasoning="2 + 2"),
        SimpleNamespace(type="text", text=" <answer> 4 </answer>"),
        SimpleNamespace(type="data"),
    )
    assert response_text([thinking, other, text]) == "<think>2 + 2</think> <answer> 4 </answer>"
    assert response_text("<answer>4</answer>") == "<answer>4</answer>"


@pytest.fixture
def inspect_ai() -> Iterator[Any]:
    yield pytest.importorskip("inspect_ai", reason="needs inspect-ai, which the extra inspect installs")
    gc.collect()  # its warnings belong to this test


def write_set(name: str, folder: Path) -> str:
    rows = {"math-500": [*MATH, {"problem": "What is $1/4$?", "answer": "\\frac{1}{4}"}], "mmlu-pro": MMLU_PRO}
    path = write_csv(folder / "x.csv", IMO) if name.startswith("imo") else write_jsonl(folder / "x.jsonl", rows[name])
    return f"{name}={path}"


def response(place: int, number: int) -> str:
    """The n-th response to a problem: right or wrong, in good format or not, another mix for every problem."""
    answers = ["8", "0.25", "B", "3", "A or B", "\\frac{2}{8}", "(C)", "$7$."]
    answer = answers[(3 * place + number * (place + 1)) % len(answers)]
    return f"no form {answer}" if number == 4 else f"<think> {number} </think> <answer> {answer} </answer>"


def evaluated(inspect_ai: Any, spec: str, log_dir: Path) -> Any:
    """The log of Inspect's own loop over its mock model."""
    asked: dict[str, list[int]] = {}

    def output(messages: Any, tools: Any, choice: Any, config: Any) -> Any:
        assert (config.temperature, config.top_p, config.max_tokens) == (1.0, 1.0, 8192)
        calls = asked.setdefault(messages[-1].text, [len(asked), 0])
        calls[1] += 1
        written = inspect_ai.model.ModelOutput.from_content("mockllm", response(calls[0], calls[1] - 1))
        written.usage = inspect_ai.model.ModelUsage()  # else it counts tokens, with a table from the network
        return written

    (log,) = inspect_ai.eval(
        benchmark_task(spec, samples=NUM_SAMPLES, settings=ScoreSettings(ks=KS)),
        model=inspect_ai.model.get_model("mockllm/model", custom_outputs=output),
        log_dir=str(log_dir),
        display="none",
    )
    assert log.status == "success", log.error
    return log


@pytest.mark.parametrize("name", ["math-500", "mmlu-pro", "imo-answerbench-v1"])
def test_benchmark_task_agrees_with_gar_eval_on_the_same_samples(inspect_ai: Any, name: str, tmp_path: Path) -> None:
    spec = write_set(name, tmp_path)
    log = evaluated(inspect_ai, spec, tmp_path / "logs")
    job = GenerateJob(model="inspect", benchmark=(spec,), samples=NUM_SAMPLES)
    (each,) = load_sets(job)
    problems = list(problem_lines(each))
    assert {problem["id"]: problem["prompt"] for problem in problems} == {s.id: s.input for s in log.samples}

    folder = EvaluationFolder(tmp_path / name)
    folder.path.mkdir()
    folder.begin(known_identity(job, each) | {"model": {"name": "mock"}}, problems, overwrite=False)
    append_lines(
        folder.samples_path,
        [
            {"problem": s.id, "sample": s.epoch, "text": s.output.completion, "tokens": [], "stop": "end",
             "prefilled_think": False}
            for s in sorted(log.samples, key=lambda s: ([p["id"] for p in problems].index(s.id), s.epoch))
        ],
    )  # fmt: skip
    metrics = score(folder, ScoreSettings(ks=KS))

    ours = {(line["problem"], line["sample"]): line for line in folder.verdicts()}
    theirs = {(s.id, s.epoch): s.scores["gar"] for s in log.samples}
    assert len(ours) == len(problems) * NUM_SAMPLES
    assert {key: (line["correct"], line["answer"], line["status"]) for key, line in ours.items()} == {
        key: (given.value == "C", given.answer, given.metadata["status"]) for key, given in theirs.items()
    }
    assert {given.value for given in theirs.values()} == {"C", "I"}
    reduced = {each.reducer: each.metrics["accuracy"].value for each in log.results.scores}
    assert reduced == {f"pass_at_{k}": pytest.approx(metrics["pass_at"][str(k)], abs=1e-12) for k in KS}
    assert 0 < reduced["pass_at_1"] < reduced["pass_at_2"] < 1


def test_benchmark_task_asks_for_our_sampling(inspect_ai: Any, tmp_path: Path) -> None:
    task = benchmark_task(write_set("math-500", tmp_path), prompt="boxed")
    assert task.epochs == 32
    assert (task.config.temperature, task.config.top_p, task.config.max_tokens) == (1.0, 1.0, 8192)
    assert task.dataset[0].input.startswith("Put your final answer within \\boxed{}.")
    assert set(task.metadata) == {"gar", "benchmark", "prompt", "sampling"}


def test_benchmark_task_refuses_more_than_one_set(inspect_ai: Any) -> None:
    with pytest.raises(ConfigError, match="a task takes one benchmark, got 'arithmetic,arithmetic-harder'"):
        benchmark_task("arithmetic,arithmetic-harder")
    with pytest.raises(ConfigError, match="pass@4 needs at least so many samples per problem, got 2"):
        benchmark_task("arithmetic", samples=2, settings=ScoreSettings(ks=(4,)))
