"""The policy's own correct responses in place of expert solutions: what rejection sampling fine-tuning trains on."""

from dataclasses import replace
from typing import Any, cast

from gar import Anchor, DataError, Problem
from gar.data import encode_prompt
from gar.integrations.trl import RunParts
from gar.models import Sampling, generate_responses
from gar.scoring import judge


def own_solutions(parts: RunParts, num_samples: int) -> list[Problem]:
    """The problems of a run, each with the correct and well-formatted ones of `num_samples` responses of its policy.

    Responses are sampled as in training. Equal texts count once.

    Raises:
        DataError: No response is correct.
    """
    args, tokenizer = parts.arguments, parts.tokenizer
    template = cast("dict[str, Any] | None", args.chat_template_kwargs)
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in parts.problems]
    sampling = Sampling(
        num_samples=num_samples,
        max_new_tokens=cast(int, args.max_completion_length),
        temperature=args.temperature,
        top_p=args.top_p,
        seed=parts.settings.seed,
    )
    groups = generate_responses(parts.model, tokenizer, prompt_ids, sampling)
    rows = [
        (problem, replace(response, prefilled=parts.reader.prefilled(ids)))
        for problem, group, ids in zip(parts.problems, groups, prompt_ids, strict=True)
        for response in {one.text: one for one in group if not one.truncated}.values()
    ]
    judged = judge(parts.verifier, [response for _, response in rows], [problem for problem, _ in rows])
    right: dict[str, list[Anchor]] = {problem.id: [] for problem in parts.problems}
    for (problem, _), response in zip(rows, judged, strict=True):
        if response.is_correct:
            right[problem.id].append(Anchor(text=response.text))
    if not any(right.values()):
        raise DataError(f"none of {len(rows)} responses is correct, so there is nothing to train on.")
    return [replace(problem, anchors=tuple(right[problem.id])) for problem in parts.problems]
