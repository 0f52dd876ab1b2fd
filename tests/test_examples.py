"""Each example runs as its docstring says, in few steps, and prints what its docstring promises."""

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from gar import GARScorer, ResponseGroup
from gar.data.arithmetic import METHODS, WORDINGS, load_arithmetic, write_solution
from gar.models.embedded import load_embedded
from gar.verify import Verifier

EXAMPLES = Path(__file__).parent.parent / "examples"
STEP = re.compile(r"step +(\d+)   reward +(\S+)   correct +(\S+)%   bonus (\S+)")


def run(name: str, *arguments: str) -> str:
    """What the example prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_steps(output: str) -> list[tuple[int, float, float, float]]:
    """Step, reward, correct percent and bonus of each line."""
    found = [(int(step), float(a), float(b), float(c)) for step, a, b, c in STEP.findall(output)]
    assert [step for step, *_ in found] == list(range(1, len(output.splitlines()) + 1))
    return found


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_gives_the_rewards_of_the_library():
    """Eight sampled responses to each of 24 problems: autograd through TRL's log-probabilities, and the closed form."""
    path = EXAMPLES / "gar_on_one_page.py"
    assert len(path.read_text().splitlines()) <= 80
    page, (model, tokenizer), problems = load_example(path.stem), load_embedded(), load_arithmetic("train")[:24]
    torch.manual_seed(0)
    groups = []
    for problem in problems:
        prompt = torch.tensor([tokenizer.encode(problem.prompt)])
        output = model.generate(prompt, do_sample=True, num_return_sequences=page.GROUP, max_new_tokens=48, top_k=0)
        texts = [without_padding(row, tokenizer) for row in output[:, prompt.shape[1] :].tolist()]
        groups.append(
            ResponseGroup(
                id=problem.id,
                prompt=problem.prompt,
                responses=texts,
                anchors=[anchor.text for anchor in problem.anchors],
                answer=problem.answer,
            )
        )
    with Verifier() as verifier:
        scores = GARScorer(model, tokenizer, verifier=verifier).score(groups)
    rewards = page.gar_reward(model, tokenizer)(
        prompts=[group.prompt for group in groups for _ in group.responses],
        completion_ids=[ids for group in groups for ids in group.responses],
        answer=[group.answer for group in groups for _ in group.responses],
        expert_solution=[group.anchors[0] for group in groups for _ in group.responses],
    )
    assert sum(score.bonus > 0.01 for score in scores) > 30
    assert sum(score.reward < 0 for score in scores) > 0  # some are badly formatted
    np.testing.assert_allclose(rewards, [score.reward for score in scores], atol=1e-4)


def without_padding(ids: list[int], tokenizer) -> list[int]:
    """A response up to its end-of-text token, as TRL passes it to reward functions."""
    return ids[: ids.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in ids else ids


def test_plain_pytorch_loop_raises_the_reward(capsys):
    load_example("plain_pytorch_loop").main(steps=10)
    steps = printed_steps(capsys.readouterr().out)
    rewards = [reward for _, reward, _, _ in steps]
    assert len(rewards) == 10
    assert mean(rewards[:5]) < 0.5  # seen: 0.38
    assert mean(rewards[5:]) > mean(rewards[:5]) + 0.15  # seen: 0.66
    assert all(bonus > 0 for *_, bonus in steps)


def test_an_engine_of_ones_own_gives_what_the_scorer_gives(capsys):
    """Two routes to the same rewards: the parts of the path by hand, and `GARScorer`."""
    load_example("plain_pytorch_loop").main(steps=3)
    assert run("add_an_engine.py", "--steps", "3") == capsys.readouterr().out


@pytest.mark.slow
def test_trl_reward_function_trains_a_stock_trainer():
    steps = printed_steps(run("trl_reward_function.py", "--steps", "2"))
    assert len(steps) == 2
    assert steps[0][1:] != steps[1][1:]
    for _, reward, correct, bonus in steps:
        # Right answers earn 1 and the bonus; bad format costs at most 0.6 each.
        assert correct / 100 + bonus - 0.4 < reward <= correct / 100 + bonus + 0.002
        assert bonus > 0


def test_trl_reward_function_groups_by_problem_id_in_any_order():
    model, tokenizer = load_embedded()
    problems = load_arithmetic("train")[:2]
    rows = []
    for problem in problems:
        texts = [write_solution(problem, method, wording) for method in METHODS for wording in WORDINGS]
        for text in [*texts, "<answer> 0 </answer>", texts[0]]:
            rows.append((problem, tokenizer.encode(text)))
    with Verifier(num_workers=1) as verifier:
        example = load_example("trl_reward_function")
        reward = example.gar_reward_function(GARScorer(model, tokenizer, verifier=verifier))

        def rewards(rows: list) -> list[float]:
            return reward(
                prompts=[problem.prompt for problem, _ in rows],
                completions=["decoded without tags"] * len(rows),
                completion_ids=[ids for _, ids in rows],
                problem_id=[problem.id for problem, _ in rows],
                answer=[problem.answer for problem, _ in rows],
                expert_solution=[problem.anchors[0].text for problem, _ in rows],
                trainer_state=SimpleNamespace(global_step=0),
                log_metric=lambda name, value: None,
            )

        expected = rewards(rows)
        assert max(expected[:8]) > 1.1
        assert max(expected[8:]) > 1.1
        order = random.Random(0).sample(range(16), 16)
        assert rewards([rows[i] for i in order]) == pytest.approx([expected[i] for i in order], abs=1e-5)


def test_score_a_file_prints_scores_and_shares_that_add_up():
    output = run("score_a_file.py")
    table = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    rows = [json.loads(line) for line in (EXAMPLES / "rollouts.jsonl").read_text().splitlines()]
    assert [row[0] for row in table] == [row["id"] for row in rows for _ in row["responses"]]
    assert {row[1] for row in table} == {"ok", "wrong"}
    for _, verdict, signal, alignment, bonus, reward, _ in table:
        assert (signal == "scored") == (verdict == "ok") == (alignment != "-")
        assert float(reward) == pytest.approx((verdict == "ok") + float(bonus), abs=0.002)
    best = max(float(row[3]) for row in table if row[3] != "-")
    heading, heat_map = output.split("in hundredths:")
    assert f"(alignment {best:.3f})" in heading
    shares = [float(share) for share in re.findall(r"[+-]\d+\.\d", heat_map)]
    assert sum(shares) == pytest.approx(100 * best, abs=0.05 * len(shares) + 0.1)  # each is rounded to 0.1
    assert "<think>" in heat_map
