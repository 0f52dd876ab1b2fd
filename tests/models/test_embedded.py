"""The embedded model: its responses before training. Its tokenizer, for all tasks."""

from itertools import product

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from gar.data.arithmetic import WORDINGS
from gar.errors import ModelError
from gar.models import embedded
from paper.tasks import make_model
from paper.tasks.chains import ARITHMETIC, ROLES, TASKS, load_task, model_path, parse_solution, write_solution
from tests.support.errors import raises


def test_embedded_path_without_assets_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with raises(ModelError, "no-model"):
        embedded.embedded_path()


@pytest.mark.parametrize("name", TASKS)
def test_tokenizer_is_the_recipes_and_round_trips_solutions(name):
    task, tokenizer = TASKS[name], PreTrainedTokenizerFast.from_pretrained(model_path(name))
    assert make_model.make_tokenizer(task).get_vocab() == tokenizer.get_vocab()
    for problem, role, wording in product(load_task(task.name, "harder")[:8], ROLES, WORDINGS):
        solution = write_solution(problem, task.method_of(role, problem), wording)
        prompt_ids, ids = tokenizer(problem.prompt)["input_ids"], tokenizer(solution)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == solution
        assert tokenizer(problem.prompt + solution)["input_ids"] == prompt_ids + ids  # splits at the prompt
        assert tokenizer.unk_token_id not in prompt_ids + ids


@torch.no_grad()
def test_load_embedded_mixes_methods_and_wordings_and_leaves_room_to_learn():
    model, tokenizer = embedded.load_embedded()
    problems = load_task("arithmetic", "test")
    torch.manual_seed(0)
    batch = tokenizer([p.prompt for p in problems], padding=True, return_tensors="pt", return_token_type_ids=False)
    rows = model.generate(**batch, do_sample=True, max_new_tokens=56)
    texts = tokenizer.batch_decode(rows[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    parsed = [parse_solution(text) for text in texts]
    roles = [ARITHMETIC.role_of(p.method, problem) for p, problem in zip(parsed, problems, strict=True)]
    share = {role: roles.count(role) / len(roles) for role in ROLES}
    assert 0.01 < share["expert"] < 0.15 < share["guess"] < 0.5 < share["habit"]
    assert all(0.15 < sum(p.wording == w for p in parsed) / len(parsed) < 0.85 for w in WORDINGS)
    right = sum(p.answer == problem.answer for p, problem in zip(parsed, problems, strict=True)) / len(parsed)
    assert 0.2 < right < 0.5
