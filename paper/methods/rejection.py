"""The policy's own correct responses in place of expert solutions: what rejection sampling fine-tuning trains on."""

from dataclasses import replace
from typing import Any, cast

from gar import Anchor, DataError, Problem
from gar.data import encode_prompt, generate_responses, prompt_text
from gar.integrations.trl import RunParts


def own_solutions(parts: RunParts, num_samples: int) -> list[Problem]:
    """The problems of a run, each with the correct and well-formatted ones of `num_samples` responses of its policy.

    Responses are sampled as in training. Equal texts count once.

    Raises:
        DataError: No response is correct.
    """
    args, tokenizer = parts.arguments, parts.tokenizer
    template = cast("dict[str, Any] | None", args.chat_template_kwargs)
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in parts.problems]
    groups = generate_responses(
        parts.model,
        tokenizer,
        prompt_ids,
        num_samples=num_samples,
        max_new_tokens=cast(int, args.max_completion_length),
        temperature=args.temperature,
        top_p=args.top_p,
        seed=parts.settings.seed,
    )
    written = [dict.fromkeys(one.text for one in group if not one.truncated) for group in groups]
    rows = [
        (problem, text, parts.reader.prefilled(ids))
        for problem, texts, ids in zip(parts.problems, written, prompt_ids, strict=True)
        for text in texts
    ]
    verdicts = parts.verifier.verify(
        [text for _, text, _ in rows],
        [problem.answer for problem, _, _ in rows],
        prefilled_think=[prefilled for _, _, prefilled in rows],
        prompts=[prompt_text(problem.prompt) for problem, _, _ in rows],
    )
    right: dict[str, list[Anchor]] = {problem.id: [] for problem in parts.problems}
    for (problem, text, _), verdict in zip(rows, verdicts, strict=True):
        if verdict.verified and verdict.well_formatted:
            right[problem.id].append(Anchor(text=text))
    if not any(right.values()):
        raise DataError(f"none of {len(rows)} responses is correct, so there is nothing to train on.")
    return [replace(problem, anchors=tuple(right[problem.id])) for problem in parts.problems]
