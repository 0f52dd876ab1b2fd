"""The benchmarks as a task of Inspect (inspect-ai): its models and logs, our problems, prompts and verdicts.

Importing this imports no inspect-ai; it is needed when a task is made. `scripts/inspect_benchmark.py` is such a task as
`inspect eval` takes it.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from gar.errors import ConfigError
from gar.evaluation.benchmarks import response_format
from gar.evaluation.folder import Line
from gar.evaluation.grading import sample_verdicts
from gar.evaluation.job import GenerateJob, PromptForm, ScoreSettings
from gar.evaluation.metrics import default_ks
from gar.evaluation.sampling import DEFAULT_MAX_NEW_TOKENS, EvaluationSet, known_identity, load_sets, problem_lines
from gar.types import Prompt, Tags
from gar.verify import Verifier


def benchmark_task(
    benchmark: str,
    *,
    prompt: PromptForm | None = None,
    samples: int | None = None,
    limit: int | None = None,
    shots: str | None = None,
    settings: ScoreSettings | None = None,
) -> Any:
    """One benchmark as an `inspect_ai.Task`.

    A sample of theirs is a problem of ours, an epoch a sample. Sampling is by our defaults, which the options of
    `inspect eval` override. A sample is correct where `gar eval score` says so: right, and in the format that was asked
    for; the score's metadata has the status. Epochs are reduced to pass@k for powers of 2 and all samples.

    Args:
        benchmark: As `gar eval generate --benchmark` takes it, one alone.
        prompt: Form of the prompts; None is the benchmark's own.
        samples: Per problem; None is our default for a set of this size.
        limit: Take the first so many problems.
        shots: A local copy of MMLU-Pro's validation split, for five-shot.
        settings: How to grade; its `ks` are those of pass@k.

    Returns:
        The task.

    Raises:
        ConfigError: inspect-ai is not installed, the benchmark is unknown, a k exceeds the number of samples, or the
            form does not fit.
        DataError: The set cannot be had, or a row is not what it should be.
    """
    inspect = _inspect_ai()
    job = GenerateJob(model="inspect", benchmark=(benchmark,), prompt=prompt, samples=samples, limit=limit, shots=shots)
    sets = load_sets(job)
    if len(sets) != 1:
        raise ConfigError(f"a task takes one benchmark, got {benchmark!r}. `inspect eval` takes several tasks.")
    settings = settings or ScoreSettings()
    identity = known_identity(job, sets[0])
    sampling = identity["sampling"]
    ks = settings.ks or default_ks(sampling["num_samples"])
    if max(ks) > sampling["num_samples"]:
        raise ConfigError(f"pass@{max(ks)} needs at least so many samples per problem, got {sampling['num_samples']}.")
    problems = list(problem_lines(sets[0]))
    return inspect.Task(
        name=sets[0].name,
        dataset=inspect.dataset.MemoryDataset([_sample(inspect, problem) for problem in problems], name=sets[0].name),
        scorer=_scorer(inspect, sets[0], problems, settings),
        epochs=inspect.Epochs(sampling["num_samples"], [f"pass_at_{k}" for k in ks]),
        config=inspect.model.GenerateConfig(
            temperature=sampling["temperature"], top_p=sampling["top_p"], max_tokens=DEFAULT_MAX_NEW_TOKENS
        ),
        metadata=identity,
    )


def _inspect_ai() -> Any:
    try:
        inspect = importlib.import_module("inspect_ai")
        for name in ("dataset", "model", "scorer"):
            importlib.import_module(f"inspect_ai.{name}")
    except ImportError as error:
        raise ConfigError(
            "a task of Inspect needs the package inspect-ai, which is not installed: pip install 'gar-rl[inspect]'. "
            "`gar eval` needs nothing."
        ) from error
    return inspect


def _sample(inspect: Any, problem: Line) -> Any:
    return inspect.dataset.Sample(
        id=problem["id"],
        input=_messages(inspect, problem["prompt"]),
        target=problem["answer"],
        metadata={"category": problem["category"], "num_choices": problem["num_choices"]},
    )


def _messages(inspect: Any, prompt: Prompt) -> Any:
    """Text as it is, which becomes a user message; messages as theirs."""
    if isinstance(prompt, str):
        return prompt
    kinds = {
        "system": inspect.model.ChatMessageSystem,
        "user": inspect.model.ChatMessageUser,
        "assistant": inspect.model.ChatMessageAssistant,
    }
    return [kinds[message["role"]](content=message["content"]) for message in prompt]


def _scorer(inspect: Any, each: EvaluationSet, problems: Sequence[Line], settings: ScoreSettings) -> Any:
    """Our verdict as their score: C or I, the answer that was found, why, and the status."""
    to_thread = importlib.import_module("anyio.to_thread")  # which inspect-ai brings
    scorer = inspect.scorer
    by_id = {problem["id"]: problem for problem in problems}
    verifier = Verifier(
        format=settings.format or response_format(each.form),
        num_workers=settings.num_workers,
        timeout_seconds=settings.timeout_seconds,
    )

    def verdict(line: Line) -> Any:
        return sample_verdicts(verifier, [line], by_id, form=each.form)[0]

    @scorer.scorer(metrics=[scorer.accuracy(), scorer.stderr()], name="gar")
    def gar() -> Any:
        async def score(state: Any, target: Any) -> Any:
            line = {"problem": state.sample_id, "text": response_text(state.output.message.content)}
            graded = await to_thread.run_sync(verdict, line | {"prefilled_think": False})
            return scorer.Score(
                value=scorer.CORRECT if graded.verified and graded.well_formatted else scorer.INCORRECT,
                answer=graded.answer,
                explanation=graded.detail,
                metadata={
                    "status": graded.status.value,
                    "verified": graded.verified,
                    "well_formatted": graded.well_formatted,
                },
            )

        return score

    return gar()


def response_text(content: str | Sequence[Any]) -> str:
    """The whole response as the model wrote it. Inspect takes its thinking part out; here it stands between our tags.

    Args:
        content: Of an assistant's message: text, or parts of which those of type "reasoning" and "text" count.
    """
    if isinstance(content, str):
        return content
    tags = Tags()
    texts = [
        f"{tags.think_open}{part.reasoning}{tags.think_close}" if part.type == "reasoning" else part.text
        for part in content
        if part.type in ("reasoning", "text")
    ]
    return "".join(texts)
