"""Grad2Reward: the judge's gradient by a second route, its prompts, what it rejects, and its trainer's advantages."""

import pytest
import torch
from torch import Tensor
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from gar.data.arithmetic import load_arithmetic, write_solution
from gar.errors import ConfigError, ModelError
from gar.models import load_embedded
from paper.methods.frozen import frozen_copy
from paper.methods.grad2reward_trainer import Grad2RewardTrainer
from paper.methods.judge import Judge
from paper.methods.judge_prompt import JudgePrompts
from paper.methods.judge_settings import JudgeSettings
from paper.tasks.chains import judge_prompt
from tests.integrations.conftest import TrainerFactory
from tests.support.errors import raises

pytestmark = pytest.mark.paper
MODEL, TOKENIZER = load_embedded()
ARITHMETIC = JudgeSettings(template="arithmetic")
# float32 gradients through four layers, summed in two orders: 2e-6 apart where measured, relative to the largest.
CLOSE = 1e-4


def solutions() -> tuple[list[str], list[list[int]]]:
    """Six problems with solutions of several lengths, the last digit of every other one wrong. One is cut off."""
    problems = load_arithmetic("test")[:6]
    methods = ("stepwise", "running", "guess", "running", "stepwise", "guess")
    texts = [
        write_solution(p, m, "words" if m == "guess" else "symbols") for p, m in zip(problems, methods, strict=True)
    ]
    ids = [TOKENIZER.encode(text) for text in texts]
    for response in ids[1::2]:
        response[-2] = TOKENIZER.convert_tokens_to_ids("0")
    ids[4] = ids[4][:7]
    return [str(p.prompt) for p in problems], ids


def plain_scores(model, before: list[int], response: list[int], after: list[int]) -> tuple[Tensor, float]:
    """b_t and the log-odds by a second route: the model's own logits, unpadded, and its embedding layer's gradient."""
    given: list[Tensor] = []

    def note(module, args, output):
        given.append(output.detach().requires_grad_())
        return given[0]

    handle = model.get_input_embeddings().register_forward_hook(note)
    try:
        logits = model(input_ids=torch.tensor([[*before, *response, *after]]), use_cache=False).logits[0, -1]
    finally:
        handle.remove()
    right, wrong = logits.log_softmax(-1)[TOKENIZER.convert_tokens_to_ids(["right", "wrong"])]
    (gradient,) = torch.autograd.grad(right, given[0])
    products = (gradient * given[0]).sum(-1)[0].detach()
    return products[len(before) : len(before) + len(response)], float((right - wrong).detach())


def gemma() -> Gemma3ForCausalLM:
    """It multiplies its embeddings by the root of its width."""
    config = Gemma3TextConfig(
        vocab_size=36, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, sliding_window=8, max_position_embeddings=128, initializer_range=0.3,
        pad_token_id=0, eos_token_id=1, bos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Gemma3ForCausalLM(config).eval()


@pytest.mark.parametrize("model", [MODEL, gemma()], ids=["qwen3", "gemma3"])
def test_token_scores_equal_autograd_through_a_plain_unpadded_run_in_any_batch(model):
    problems, responses = solutions()
    expected = [
        plain_scores(model, TOKENIZER.encode(problem), response, TOKENIZER.encode("<sep>"))
        for problem, response in zip(problems, responses, strict=True)
    ]
    for max_batch_tokens in (1, 60, 4096):
        settings = JudgeSettings(template="arithmetic", max_batch_tokens=max_batch_tokens)
        found = Judge(frozen_copy(model), TOKENIZER, settings).token_scores(problems, responses)
        for scores, log_odds, (truth, odds) in zip(found.scores, found.log_odds, expected, strict=True):
            assert scores.dtype == torch.float32
            torch.testing.assert_close(scores, truth, rtol=0, atol=CLOSE * float(truth.abs().max()))
            assert float(log_odds) == pytest.approx(odds, abs=1e-4)


def test_prompts_put_in_the_ids_of_the_response_as_they_are():
    problem = load_arithmetic("test")[3]
    solution = write_solution(problem, "running", "words")
    prompts = JudgePrompts(TOKENIZER, ARITHMETIC)
    written = prompts.write(problem.prompt, TOKENIZER.encode(solution))
    assert written.ids == TOKENIZER.encode(judge_prompt(problem, solution))
    odd = [TOKENIZER.unk_token_id, TOKENIZER.eos_token_id, 5, 5]  # no text encodes to these
    written = prompts.write(problem.prompt, odd)
    assert written.ids[written.start : written.start + written.num_tokens] == odd


def test_a_template_that_cannot_be_filled_in_is_an_error(tmp_path):
    for text in ("{problem} <sep>", "{response} <sep>", "{problem} {response} {answer}", "{problem} {response} }",
                 "{problem} {response} {response}", "{problem} {response!r}", ""):  # fmt: skip
        (tmp_path / "judge.txt").write_text(text, encoding="utf-8")
        with raises(ConfigError):
            JudgePrompts(TOKENIZER, JudgeSettings(template=str(tmp_path / "judge.txt")))


def test_judge_rejects_a_model_that_reads_its_tokens_twice():
    """A model with per-layer embeddings computes something else from input embeddings alone."""
    model = frozen_copy(MODEL)

    def stretch(module, args, kwargs, output):
        if kwargs.get("input_ids") is not None:
            output.last_hidden_state = output.last_hidden_state * 3
        return output

    model.model.register_forward_hook(stretch, with_kwargs=True)
    with raises(ModelError):
        Judge(model, TOKENIZER, ARITHMETIC)


def test_grad2reward_advantages_are_returns_of_the_judges_shares_normalized_over_the_groups_tokens(make_trainer):
    """From the judge's token scores on: standardize, softmax, returns, z-score over the group."""
    problems = load_arithmetic("train")[:64]
    trainer, records = make_trainer(kind=Grad2RewardTrainer, judge=ARITHMETIC, problems=problems)
    kept = []
    original = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: kept.append(original(rows)) or kept[-1]
    trainer.train()
    (output,) = kept
    assert output["advantages"].shape == output["completion_ids"].shape

    judge = Judge(frozen_copy(MODEL), TOKENIZER, ARITHMETIC)
    rewards = torch.zeros(output["completion_ids"].shape, dtype=torch.float64)
    for i, record in enumerate(records):
        rewards[i, record.num_tokens - 1] = record.eligible + record.penalty
        if record.eligible:
            ids = output["completion_ids"][i, : record.num_tokens].tolist()
            scores = judge.token_scores([record.prompt], [ids]).scores[0].double()
            standardized = (scores - scores.mean()) / scores.std(correction=0)
            rewards[i, : len(scores)] += standardized.softmax(-1)  # the judge does not see the end token
    assert any(record.eligible for record in records)
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    for group in {record.group_index for record in records}:
        members = {i: record.num_tokens for i, record in enumerate(records) if record.group_index == group}
        values = torch.cat([returns[i, :count] for i, count in members.items()])
        for i, count in members.items():
            expected = (returns[i, :count] - values.mean()) / (values.std() + 1e-4)
            torch.testing.assert_close(output["advantages"][i, :count].double(), expected, rtol=0, atol=2e-4)
            assert records[i].advantage == pytest.approx(float(expected.mean()), abs=2e-4)
    (logged,) = [row for row in trainer.state.log_history if "gar/judge_agreement" in row]
    assert logged["gar/judge_effective_tokens"] > 1
    assert 0 <= logged["gar/judge_agreement"] <= 1


def test_grad2reward_trains_and_leaves_its_judge_alone(make_trainer: TrainerFactory):
    trainer, _ = make_trainer(kind=Grad2RewardTrainer, judge=ARITHMETIC, args={"num_iterations": 2, "max_steps": 2})
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train()
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    judge = trainer._judge._model
    assert all(torch.equal(before[name], tensor) for name, tensor in judge.state_dict().items())
