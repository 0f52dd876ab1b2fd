"""The judge of Grad2Reward: its gradient against autograd and finite differences, its rewards, what it rejects."""

import pytest
import torch
from torch import Tensor
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from gar.data.arithmetic import load_arithmetic, write_solution
from gar.errors import ConfigError, ModelError
from gar.models import load_embedded
from paper.methods.frozen import frozen_copy
from paper.methods.judge import Judge
from paper.methods.judge_prompt import JudgePrompts
from paper.methods.judge_settings import JudgeSettings
from paper.tasks.chains import judge_prompt
from tests.support.errors import raises

pytestmark = pytest.mark.paper
WORDS = {"verdict_true": " right", "verdict_false": " wrong"}
ARITHMETIC = JudgeSettings(template="arithmetic", **WORDS)
# float32 gradients through four layers, summed in two orders: 2e-6 apart where measured, relative to the largest.
CLOSE = 1e-4


@pytest.fixture(scope="module")
def embedded():
    return load_embedded()


@pytest.fixture(scope="module")
def tokenizer(embedded):
    return embedded[1]


@pytest.fixture(scope="module")
def judge(embedded) -> Judge:
    return Judge(frozen_copy(embedded[0]), embedded[1], ARITHMETIC)


@pytest.fixture(scope="module")
def solutions(tokenizer) -> tuple[list[str], list[list[int]]]:
    """Six problems with solutions of several lengths, the last digit of every other one wrong; one is cut off."""
    problems = load_arithmetic("test")[:6]
    methods = ("stepwise", "running", "guess", "running", "stepwise", "guess")
    texts = [
        write_solution(p, m, "words" if m == "guess" else "symbols") for p, m in zip(problems, methods, strict=True)
    ]
    ids = [tokenizer.encode(text) for text in texts]
    for response in ids[1::2]:
        response[-2] = tokenizer.convert_tokens_to_ids("0")
    ids[4] = ids[4][:7]
    return [str(p.prompt) for p in problems], ids


def plain_scores(model, before: list[int], response: list[int], after: list[int], verdict: list[int]) -> Tensor:
    """b_t by another route: the model's own logits, unpadded, and the gradient of what its embedding layer gave."""
    given: list[Tensor] = []

    def note(module, args, output):
        given.append(output.detach().requires_grad_())
        return given[0]

    handle = model.get_input_embeddings().register_forward_hook(note)
    try:
        logits = model(input_ids=torch.tensor([[*before, *response, *after, *verdict]]), use_cache=False).logits[0]
    finally:
        handle.remove()
    places = range(len(before) + len(response) + len(after) - 1, logits.shape[0] - 1)
    log_prob = sum(logits[place].log_softmax(-1)[token] for place, token in zip(places, verdict, strict=True))
    (gradient,) = torch.autograd.grad(log_prob, given[0])
    products = (gradient * given[0]).sum(-1)[0].detach()
    return products[len(before) : len(before) + len(response)]


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= CLOSE * float(expected.abs().max())


@pytest.mark.parametrize("max_batch_tokens", [1, 60])
def test_token_scores_do_not_depend_on_batches_padding_or_order(embedded, judge, solutions, max_batch_tokens):
    problems, responses = solutions
    settings = JudgeSettings(template="arithmetic", max_batch_tokens=max_batch_tokens, **WORDS)
    expected = judge.token_scores(problems, responses)
    order = [3, 0, 5, 1, 4, 2]
    found = Judge(frozen_copy(embedded[0]), embedded[1], settings).token_scores(
        [problems[i] for i in order], [responses[i] for i in order]
    )
    for place, i in enumerate(order):
        assert_close(found.scores[place], expected.scores[i])
        assert float(found.log_odds[place]) == pytest.approx(float(expected.log_odds[i]), abs=1e-4)


def gemma() -> Gemma3ForCausalLM:
    """It multiplies its embeddings by the root of its width."""
    config = Gemma3TextConfig(
        vocab_size=36, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, sliding_window=8, max_position_embeddings=128, initializer_range=0.3,
        pad_token_id=0, eos_token_id=1, bos_token_id=2,
    )  # fmt: skip
    return Gemma3ForCausalLM(config).eval()


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_token_scores_equal_autograd_through_a_plain_unpadded_run(embedded, judge, solutions, family):
    tokenizer = embedded[1]
    if family == "gemma3":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            judge = Judge(gemma(), tokenizer, ARITHMETIC)
    problems, responses = solutions
    found = judge.token_scores(problems, responses)
    for problem, response, scores in zip(problems, responses, found.scores, strict=True):
        before, after, verdict = (tokenizer.encode(text) for text in (problem, "<sep>", "right"))
        assert_close(scores, plain_scores(judge._model, before, response, after, verdict))
        assert scores.dtype == torch.float32


def test_prompts_put_in_the_ids_of_the_response_as_they_are(tokenizer):
    problem = load_arithmetic("test")[3]
    solution = write_solution(problem, "running", "words")
    prompts = JudgePrompts(tokenizer, ARITHMETIC)
    written = prompts.write(problem.prompt, tokenizer.encode(solution))
    assert written.ids == tokenizer.encode(judge_prompt(problem, solution))
    odd = [tokenizer.unk_token_id, tokenizer.eos_token_id, 5, 5]  # no text encodes to these
    written = prompts.write(problem.prompt, odd)
    assert written.ids[written.start : written.start + written.num_tokens] == odd


def test_a_template_that_cannot_be_filled_in_is_an_error(tokenizer, tmp_path):
    for text in ("{problem} <sep>", "{response} <sep>", "{problem} {response} {answer}", "{problem} {response} }",
                 "{problem} {response} {response}", "{problem} {response!r}", ""):  # fmt: skip
        (tmp_path / "judge.txt").write_text(text, encoding="utf-8")
        with raises(ConfigError):
            JudgePrompts(tokenizer, JudgeSettings(template=str(tmp_path / "judge.txt"), **WORDS))


def test_judge_refuses_a_model_that_reads_its_tokens_twice(embedded):
    """As one with per-layer embeddings does: what it computes from embeddings alone is something else."""
    model = frozen_copy(embedded[0])

    def stretch(module, args, kwargs, output):
        if kwargs.get("input_ids") is not None:
            output.last_hidden_state = output.last_hidden_state * 3
        return output

    model.model.register_forward_hook(stretch, with_kwargs=True)
    with raises(ModelError):
        Judge(model, embedded[1], ARITHMETIC)
