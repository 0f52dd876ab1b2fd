"""Each example runs as its docstring says, in few steps, and prints what its docstring promises."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

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


def test_the_page_gives_the_rewards_of_the_library():
    """Eight sampled responses to each of 12 problems: autograd through TRL's log-probabilities, and the closed form."""
    path = EXAMPLES / "gar_on_one_page.py"
    assert len(path.read_text().splitlines()) <= 80
    page, (model, tokenizer), problems = runpy.run_path(str(path)), load_embedded(), load_arithmetic("train")[:12]
    torch.manual_seed(0)
    groups = []
    for problem in problems:
        prompt = torch.tensor([tokenizer.encode(problem.prompt)])
        output = model.generate(prompt, do_sample=True, num_return_sequences=page["GROUP"], max_new_tokens=48, top_k=0)
        rows, end = output[:, prompt.shape[1] :].tolist(), tokenizer.eos_token_id
        texts = [ids[: ids.index(end) + 1] if end in ids else ids for ids in rows]  # as TRL passes them
        anchors = [anchor.text for anchor in problem.anchors]
        groups.append(ResponseGroup(prompt=problem.prompt, responses=texts, anchors=anchors, answer=problem.answer))
    with Verifier() as verifier:
        scores = GARScorer(model, tokenizer, verifier=verifier).score(groups)
    rewards = page["gar_reward"](model, tokenizer)(
        prompts=[group.prompt for group in groups for _ in group.responses],
        completion_ids=[ids for group in groups for ids in group.responses],
        answer=[group.answer for group in groups for _ in group.responses],
        expert_solution=[group.anchors[0] for group in groups for _ in group.responses],
    )
    assert sum(score.bonus > 0.01 for score in scores) > 15
    assert sum(score.reward < 0 for score in scores) > 0  # some are badly formatted
    np.testing.assert_allclose(rewards, [score.reward for score in scores], atol=1e-4)


@pytest.mark.slow
def test_an_engine_of_ones_own_gives_what_the_scorer_gives(run):
    """Two routes to the same rewards: the parts of the path by hand, and `GARScorer` in a plain loop."""
    loop = run("plain_pytorch_loop.py", "--steps", "2")
    assert [float(bonus) > 0 for *_, bonus in STEP.findall(loop)] == [True, True]
    assert run("add_an_engine.py", "--steps", "2") == loop


@pytest.mark.slow
def test_trl_reward_function_trains_a_stock_trainer(run):
    first, second = [tuple(map(float, row)) for row in STEP.findall(run("trl_reward_function.py", "--steps", "2"))]
    assert first[1:] != second[1:]
    for _, reward, correct, bonus in (first, second):
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
