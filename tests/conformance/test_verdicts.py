"""A verdict does not depend on the engine or on the chat template: each hands the problem alone to the verifier."""

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gar.config import make_config
from gar.data import render_problems
from gar.evaluation.grade import judged_groups
from gar.integrations.data import slime_rows, verl_rows
from gar.integrations.slime.convert import SampleReader
from gar.integrations.trl.rollouts import RolloutBatch
from gar.reader import Reader, judge
from gar.response import Response
from gar.scoring.scorer import GARScorer
from gar.scoring.scores import ResponseGroup
from gar.settings import SignalSettings, VerifySettings
from gar.types import Problem, Status
from gar.verify import Verifier
from tests.support.tiny import tiny_qwen3

TEMPLATES = {
    "none": None,
    "qwen": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n",
    "llama-3": "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content }}<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
}
EXPAND, APPLES = "Expand (x-1)(x+1)", "Ann has 12 boxes of 5 apples. How many apples are there?"
CASES = [
    (EXPAND, "x^2-1", r"\boxed{(x-1)(x+1)}", Status.WRONG),  # the problem itself
    (EXPAND, "x^2-1", r"\boxed{x^2-1}", Status.OK),
    (APPLES, "60", r"\boxed{60 apples}", Status.OK),  # its noun
    (APPLES, "60", r"\boxed{65}", Status.WRONG),
    (APPLES, "60", "I do not know", Status.UNPARSED),
]
PROBLEMS = [Problem(id=str(i), prompt=prompt, answer=answer) for i, (prompt, answer, _, _) in enumerate(CASES)]
TEXTS, STATUSES = [text for _, _, text, _ in CASES], [status for *_, status in CASES]
CONFIG = make_config({"verify": {"format": "boxed", "num_workers": 1}})


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    """A token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate([*alphabet, "<eos>"])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<eos>")
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer


def through_trl(tokenizer: Any, reader: Reader, verifier: Verifier) -> list[Response]:
    problems = render_problems(PROBLEMS, "boxed", tokenizer)
    batch = RolloutBatch(problems=problems, group_index=[*range(len(problems))])
    prompts, ids = [reader.encode(problem.prompt) for problem in problems], [tokenizer.encode(text) for text in TEXTS]
    batch.read(reader, {}, prompts, ids, None, endings=[])
    return judge(verifier, batch.responses, batch.problems)


def through_evaluation(tokenizer: Any, reader: Reader, verifier: Verifier) -> list[Response]:
    problems, groups = render_problems(PROBLEMS, "boxed", tokenizer), [[Response(text=text)] for text in TEXTS]
    judged = judged_groups(verifier, problems, groups)
    return [response for (response,) in judged]


def through_slime(tokenizer: Any, reader: Reader, verifier: Verifier) -> list[Response]:
    rows = slime_rows(PROBLEMS, "boxed", chat=bool(tokenizer.chat_template))
    samples = []
    for row, text in zip(rows, TEXTS, strict=True):
        ids, prompt = tokenizer.encode(text), reader.encode(row["prompt"])
        samples.append(
            SimpleNamespace(
                tokens=[*prompt, *ids], response_length=len(ids), loss_mask=None, group_index=0, label=row["label"],
                metadata=row["metadata"],
            )
        )  # fmt: skip
    return SampleReader(tokenizer, CONFIG, context=None).judged(samples)


def through_verl(tokenizer: Any, reader: Reader, verifier: Verifier) -> list[Response]:
    """As `GarRewardManager.run_single`, which needs verl (tests/engines/verl)."""
    rows = list(verl_rows(PROBLEMS, "boxed"))
    prompts = [reader.encode(row["prompt"]) if tokenizer.chat_template else tokenizer.encode("x") for row in rows]
    problems = [
        reader.problem(prompt, row["reward_model"]["ground_truth"], row["extra_info"])
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    given = [reader.read(prompt, tokenizer.encode(text)) for prompt, text in zip(prompts, TEXTS, strict=True)]
    return judge(verifier, given, problems)


def through_scorer(tokenizer: Any, reader: Reader, verifier: Verifier) -> list[Response]:
    problems = render_problems(PROBLEMS, "boxed", tokenizer)
    groups = [
        ResponseGroup(prompt=reader.encode(p.prompt), responses=[text], answer=p.answer, question=p.question)
        for p, text in zip(problems, TEXTS, strict=True)
    ]
    words = [f"{i}" for i in range(len(tokenizer) - 1)] + ["<eos>"]
    model = tiny_qwen3(words, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                       num_key_value_heads=1, max_position_embeddings=4096)  # fmt: skip
    scores = GARScorer(model, tokenizer, method="grpo", verifier=verifier).score(groups)
    return [SimpleNamespace(verdict=SimpleNamespace(status=score.status)) for score in scores]  # pyright: ignore


@pytest.fixture(scope="module")
def verifier():
    with Verifier(format="boxed") as verifier:
        yield verifier


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("driver", [through_trl, through_evaluation, through_slime, through_verl, through_scorer])
def test_a_verdict_depends_neither_on_the_engine_nor_on_the_chat_template(
    driver: Any, template: str, verifier: Verifier
):
    tokenizer = tokenizer_of(template)
    reader = Reader.from_settings(tokenizer, SignalSettings(), VerifySettings(format="boxed"))
    assert [each.verdict.status for each in driver(tokenizer, reader, verifier)] == STATUSES
