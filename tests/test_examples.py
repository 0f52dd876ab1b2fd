"""Each example runs as its docstring says, in few steps, and prints what its docstring promises."""

import importlib.util
import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from gar import GARScorer, ResponseGroup
from gar.data.arithmetic import load_arithmetic
from gar.models.embedded import load_embedded
from gar.verify import Verifier

EXAMPLES = Path(__file__).parent.parent / "examples"
STEP = re.compile(r"step +(\d+)   reward +(\S+)   correct +(\S+)%   bonus (\S+)")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an example as its docstring says, in this process, and gives what it prints."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


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
    """Eight sampled responses to each of 12 problems: autograd through TRL's log-probabilities, and the closed form."""
    path = EXAMPLES / "gar_on_one_page.py"
    assert len(path.read_text().splitlines()) <= 80
    page, (model, tokenizer), problems = load_example(path.stem), load_embedded(), load_arithmetic("train")[:12]
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
    assert sum(score.bonus > 0.01 for score in scores) > 15
    assert sum(score.reward < 0 for score in scores) > 0  # some are badly formatted
    np.testing.assert_allclose(rewards, [score.reward for score in scores], atol=1e-4)


def without_padding(ids: list[int], tokenizer) -> list[int]:
    """A response up to its end-of-text token, as TRL passes it to reward functions."""
    return ids[: ids.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in ids else ids


def test_an_engine_of_ones_own_gives_what_the_scorer_gives(run):
    """Two routes to the same rewards: the parts of the path by hand, and `GARScorer` in a plain loop."""
    loop = run("plain_pytorch_loop.py", "--steps", "2")
    assert len(printed_steps(loop)) == 2
    assert all(bonus > 0 for *_, bonus in printed_steps(loop))
    assert run("add_an_engine.py", "--steps", "2") == loop


@pytest.mark.slow
def test_trl_reward_function_trains_a_stock_trainer(run):
    steps = printed_steps(run("trl_reward_function.py", "--steps", "2"))
    assert len(steps) == 2
    assert steps[0][1:] != steps[1][1:]
    for _, reward, correct, bonus in steps:
        # Right answers earn 1 and the bonus; bad format costs at most 0.6 each.
        assert correct / 100 + bonus - 0.4 < reward <= correct / 100 + bonus + 0.002
        assert bonus > 0


def test_score_a_file_prints_a_row_for_each_response_and_shares(run):
    output = run("score_a_file.py")
    table = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    rows = [json.loads(line) for line in (EXAMPLES / "rollouts.jsonl").read_text().splitlines()]
    assert [row[0] for row in table] == [row["id"] for row in rows for _ in row["responses"]]
    assert {row[1] for row in table} == {"ok", "wrong"}
    assert "<think>" in output.split("in hundredths:")[1]
