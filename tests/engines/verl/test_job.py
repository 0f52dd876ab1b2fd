"""What the rehearsal of a run leaves (scripts/rehearse.sh): verl with vLLM, killed, resumed, merged, evaluated.

`make test-verl-vllm` installs what it needs and runs this. The rehearsal takes minutes.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gar import GARScorer
from gar.config import make_config
from gar.data.arithmetic import load_arithmetic
from gar.verify import Verifier
from tests.docs.pages import ROOT
from tests.support.processes import completed, running
from tests.support.rows import group_of

pytest.importorskip("vllm", reason="vLLM is not installed beside verl: make test-verl-vllm installs it and runs this")
from tests.engines.verl.job import end_job

GAR = os.environ.get("GAR", str(ROOT / ".venv" / "bin" / "gar"))
LIMIT = 7200.0
"""Seconds of the rehearsal, which took 259 on two quiet cores, and 976 at a load of 20."""
GROUP, BATCH, STEPS, LENGTH, VALIDATION = 4, 4, 3, 64, 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rehearsal's folder. pytest's `-s` shows its output."""
    folder = tmp_path_factory.mktemp("job") / "run"
    environment = os.environ | {"PYTHON": sys.executable, "GAR": GAR}
    with running(["bash", ROOT / "scripts/rehearse.sh", folder], env=environment) as process:
        try:
            assert process.wait(timeout=LIMIT) == 0
        finally:
            end_job(f"g{process.pid}_")
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(folder: Path) -> dict[int, dict[str, float]]:
    """By step. A step that both jobs made is the second's."""
    return {line["step"]: line["data"] for name in ("first", "second") for line in lines(folder / f"{name}.jsonl")}


def checkpoint(folder: Path, step: int) -> Path:
    """The weights after a step, in float32."""
    return folder / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface" if step else folder / "model"


def test_the_second_job_goes_on_from_the_checkpoint_of_the_first(folder):
    first = next(iter(lines(folder / "second.jsonl")))["step"]
    assert 1 < first <= STEPS
    assert sorted(metrics(folder)) == [*range(1, STEPS + 1)]


def test_each_step_has_the_metrics_of_gar_and_weights_arrive_before_the_next(folder):
    for step in metrics(folder).values():
        assert step["gar/alignment_mean"] != 0
        assert 0 < step["gar/eligible_fraction"] <= 1
        assert step["actor/grad_norm"] > 0
        assert step["training/rollout_probs_diff_max"] < 1e-5  # without an update, or before it arrives, 0.01 and more


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_rewards_are_those_of_the_scorer_with_the_weights_of_the_step(folder, step):
    """A step of the second job has the weights of a checkpoint."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(checkpoint(folder, step - 1), dtype=torch.float32)
    problems = {spelled(tokenizer, problem.prompt): problem for problem in load_arithmetic("train")}
    rows = lines(folder / "rollouts" / f"{step}.jsonl")
    assert len(rows) == GROUP * BATCH
    groups = [rows[start : start + GROUP] for start in range(0, len(rows), GROUP)]
    asked = [problems[group[0]["input"]] for group in groups]
    launched = {"signal": {"max_tokens": 768}, "reward": {"bonus_weight": 0.5, "format_penalty": -0.6}}
    config = make_config({"variant": "paper-thresholds", **launched})
    with Verifier() as verifier:
        scores = GARScorer(model, tokenizer, verifier=verifier, signal=config.signal, reward=config.reward).score(
            [
                group_of(problem, [row["output"] for row in group], answer=problem.answer)
                for problem, group in zip(asked, groups, strict=True)
            ]
        )
    found, expected = [row["score"] for row in rows], [score.reward for score in scores]
    assert found == pytest.approx(expected, abs=1e-5)


def test_some_responses_earned_a_bonus(folder):
    """In which steps is chance: vLLM's samples depend on how requests meet."""
    rows = [row for step in range(1, STEPS + 1) for row in lines(folder / "rollouts" / f"{step}.jsonl")]
    assert any(row["score"] > 1 for row in rows)


def spelled(tokenizer: Any, prompt: str) -> str:
    """A prompt as verl logs it."""
    return tokenizer.decode(tokenizer.encode(prompt), skip_special_tokens=True)


def test_the_last_weights_have_the_pass_at_1_of_the_runs_own_validation(folder):
    """verl validates with vLLM, `gar eval` samples with transformers: both greedily, in float32."""
    out = folder / "evals" / "last"
    command = [GAR, "eval", "run", checkpoint(folder, STEPS), "--benchmark", f"val={folder / 'test.jsonl'}"]
    options = {"template": "plain", "samples": 1, "temperature": 0, "max-new-tokens": LENGTH, "dtype": "float32"}
    completed([*command, "--out", out, *(word for pair in options.items() for word in (f"--{pair[0]}", str(pair[1])))])
    validated = lines(folder / "validation" / f"{STEPS}.jsonl")
    (logged,) = (value for name, value in metrics(folder)[STEPS].items() if name.endswith("/acc/mean@1"))
    assert len(validated) == VALIDATION
    assert logged == pytest.approx(sum(row["acc"] for row in validated) / VALIDATION)
    assert pass_at_1(out) == pytest.approx(logged)


def test_the_merged_weights_are_the_last_ones_in_bfloat16(folder):
    """verl's merger rounds them, as vLLM does on a GPU. So its pass@1 may differ by near ties."""
    last = AutoModelForCausalLM.from_pretrained(checkpoint(folder, STEPS), dtype=torch.float32).state_dict()
    merged = AutoModelForCausalLM.from_pretrained(folder / "merged", dtype="auto").state_dict()
    assert set(last) == set(merged)
    assert all(torch.equal(weight.bfloat16(), merged[name]) for name, weight in last.items())
    assert 0 <= pass_at_1(folder / "evals" / "merged") <= 1
    assert (folder / "report.html").stat().st_size > 0


def pass_at_1(out: Path) -> float:
    return json.loads((out / "val" / "metrics.json").read_text())["sets"]["val"]["pass_at"]["1"]
