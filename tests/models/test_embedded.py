"""The embedded model: what it knows before training, and that its recipe makes it. Its tokenizer, for all tasks."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from gar.data.arithmetic import WORDINGS
from gar.errors import ModelError
from gar.models import embedded
from paper.tasks import make_model
from paper.tasks.chains import (
    ARITHMETIC,
    ROLES,
    TASKS,
    VERDICT_RIGHT,
    VERDICT_WRONG,
    judge_prompt,
    load_task,
    model_path,
    parse_solution,
    privileged_prompt,
    write_solution,
)
from tests.support.errors import raises

TEST = load_task("arithmetic", "test")


@pytest.fixture(scope="module")
def loaded():
    return embedded.load_embedded()


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
def sample(model, tokenizer, prompts):
    torch.manual_seed(0)
    batch = tokenizer(prompts, padding=True, return_tensors="pt", return_token_type_ids=False)
    rows = model.generate(**batch, do_sample=True, max_new_tokens=56)
    return tokenizer.batch_decode(rows[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def test_load_embedded_mixes_methods_and_wordings_and_leaves_room_to_learn(loaded):
    parsed = [parse_solution(text) for text in sample(*loaded, [problem.prompt for problem in TEST])]
    roles = [ARITHMETIC.role_of(p.method, problem) for p, problem in zip(parsed, TEST, strict=True)]
    share = {role: roles.count(role) / len(roles) for role in ROLES}
    assert 0.01 < share["expert"] < 0.15 < share["guess"] < 0.5 < share["habit"]
    assert all(0.15 < sum(p.wording == w for p in parsed) / len(parsed) < 0.85 for w in WORDINGS)
    right = sum(p.answer == problem.answer for p, problem in zip(parsed, TEST, strict=True)) / len(parsed)
    assert 0.2 < right < 0.5


def test_load_embedded_follows_the_expert_solution_in_the_prompt(loaded):
    texts = sample(*loaded, [privileged_prompt(problem) for problem in TEST[:50]])
    assert sum(text == p.anchors[0].text for text, p in zip(texts, TEST, strict=False)) > 30


@torch.no_grad()
def test_load_embedded_judges_solutions_in_the_experts_method(loaded):
    model, tokenizer = loaded
    right_id, wrong_id = tokenizer.convert_tokens_to_ids([VERDICT_RIGHT, VERDICT_WRONG])
    hits = 0
    for index, problem in enumerate(TEST[:100]):
        off_by = index % 2  # every other solution slips at its last step
        values = [*parse_solution(problem.anchors[0].text).values]
        values[-1] = (values[-1] + off_by) % 10
        solution = write_solution(problem, ARITHMETIC.method_of("expert", problem), "symbols", values=values)
        ids = tokenizer(judge_prompt(problem, solution), return_tensors="pt")["input_ids"]
        logits = model(ids).logits[0, -1]
        hits += bool(logits[right_id] > logits[wrong_id]) == (off_by == 0)
    assert hits > 75  # a coin gives 50, standard deviation 5


def test_make_embedded_model_same_seed_gives_the_same_bits():
    recipe = make_model.RECIPES["arithmetic"]
    phases = tuple(replace(phase, num_steps=1) for phase in recipe.phases)
    first, second = (make_model.train(replace(recipe, phases=phases, seed=3))[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
