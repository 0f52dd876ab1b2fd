"""Problems that a model never solves, with the beginning of their solution in the prompt [POPE, arXiv 2601.18779].

A group of responses that are all wrong teaches nothing. A prompt that holds the first steps of the solution makes some
of them right. The expert solution of such a problem is the rest of the one that it had.

    python -m paper.tasks.guide problems.jsonl guided.jsonl --model MODEL [--samples 8] [--seed 0]

Prompts of the new file are without the template.
"""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gar import Anchor, ModelSettings, Problem, Prompt, Tags, Verifier
from gar.data import encode_prompt, load_problems, render_problems, write_problems
from gar.models import Sampling, generate_responses, load_policy
from gar.scoring import judge

SHARES = (0.25, 0.5, 0.75)
"""Shares of a solution that are tried, the shortest first."""
WORDING = "{prompt}\n\nA correct solution begins like this:\n{beginning}\nGo on from there."
_BORDER = re.compile(r"\n+|(?<=[.;!?])\s+|(?<=\bthen)\s+")
_ANSWER = (r"\boxed", "####")

CountRight = Callable[[Sequence[Problem]], Sequence[int]]
"""How many of a fixed number of responses to each problem are right."""


@dataclass(frozen=True, kw_only=True)
class Guided:
    """All problems in their order, the share of the solution in the prompt by id, and how many were never solved."""

    problems: Sequence[Problem]
    shares: Mapping[str, float]
    num_hard: int


def guide_problems(
    problems: Sequence[Problem],
    count_right: CountRight,
    *,
    num_samples: int,
    wording: str = WORDING,
    tags: Tags | None = None,
) -> Guided:
    """Replace each problem without a right response by a copy with the beginning of its solution in the prompt.

    The first expert solution counts. Its beginning is the shortest of `SHARES` with which some but not all responses
    are right. If there is none, the problem does not change. `wording` has {prompt} and {beginning}.
    """
    guided = list(problems)
    waiting = [i for i, right in enumerate(count_right(problems)) if right == 0]
    num_hard, shares = len(waiting), dict[str, float]()
    for share in SHARES:
        tried = {i: copy for i in waiting if (copy := guided_copy(problems[i], share, wording, tags or Tags()))}
        counts = count_right([*tried.values()]) if tried else []
        found = {i: copy for (i, copy), right in zip(tried.items(), counts, strict=True) if 0 < right < num_samples}
        for i, copy in found.items():
            guided[i] = copy
            shares[copy.id] = share
        waiting = [i for i in waiting if i not in found]
    return Guided(problems=guided, shares=shares, num_hard=num_hard)


def guided_copy(problem: Problem, share: float, wording: str, tags: Tags) -> Problem | None:
    """The problem with at most this share of its solution in the prompt. None if no step ends early enough."""
    parts = split_solution(problem.anchors[0].text, share, tags) if problem.anchors else None
    if parts is None:
        return None
    beginning, rest = parts
    return replace(problem, prompt=_worded(problem.prompt, beginning, wording), anchors=(Anchor(text=rest),))


def _worded(prompt: Prompt, beginning: str, wording: str) -> Prompt:
    """The prompt, or its last message, which is the user's, in the wording with the beginning."""
    if not isinstance(prompt, str):
        *before, last = prompt
        return [*before, {**last, "content": str(_worded(last["content"], beginning, wording))}]
    return wording.replace("{prompt}", prompt).replace("{beginning}", beginning)


def split_solution(solution: str, share: float, tags: Tags) -> tuple[str, str] | None:
    """A solution's beginning, without the opening thinking tag, and its rest, which has the tag again.

    The cut is the last border of a line, a sentence or a step (`;` or "then") within the share of the working, which
    ends before the answer.

    Example:
        >>> split_solution("<think> [ 1 * 0 = 0 ; 0 - 3 = 7 ] </think> <answer> 7 </answer>", 0.75, Tags())
        ('[ 1 * 0 = 0 ;', '<think> 0 - 3 = 7 ] </think> <answer> 7 </answer>')
    """
    opened, tag, after = solution.partition(tags.think_open)
    before, text = (opened + tag, after) if tag else ("", solution)
    ends = [place for end in (tags.think_close, tags.answer_open, *_ANSWER) if (place := text.find(end)) >= 0]
    length = min(ends, default=len(text))
    cuts = [border.end() for border in _BORDER.finditer(text, 0, length) if border.start() <= share * length]
    if not cuts or not text[: cuts[-1]].strip() or not text[cuts[-1] : length].strip():
        return None
    space = " " if before and text[:1] == " " else ""
    return text[: cuts[-1]].strip(), before + space + text[cuts[-1] :]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the guided problems, and say how many there are by share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="problems, as gar train reads them")
    parser.add_argument("out", type=Path, help="the .jsonl to write")
    parser.add_argument("--model", required=True, help="folder or Hub id of the policy, or embedded")
    parser.add_argument("--template", default="think-answer", choices=("plain", "chat", "think-answer", "boxed"))
    parser.add_argument("--samples", type=int, default=8, help="responses to each problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    parser.add_argument("--wording", default=WORDING, help="the new prompt, with {prompt} and {beginning}")
    options = parser.parse_args(arguments)
    policy, tokenizer = load_policy(ModelSettings(path=options.model))
    sampling = Sampling(num_samples=options.samples, max_new_tokens=options.max_new_tokens, seed=options.seed)
    with Verifier(format="boxed" if options.template == "boxed" else "think-answer") as verifier:

        def count_right(problems: Sequence[Problem]) -> list[int]:
            shown = render_problems(problems, options.template, tokenizer)
            prompt_ids = [encode_prompt(tokenizer, problem.prompt) for problem in shown]
            groups = generate_responses(policy, tokenizer, prompt_ids, sampling, progress="guide")
            return [
                sum(response.is_correct for response in judge(verifier, group, [problem] * len(group)))
                for group, problem in zip(groups, shown, strict=True)
            ]

        guided = guide_problems(
            load_problems(options.source), count_right, num_samples=options.samples, wording=options.wording
        )
    write_problems(guided.problems, options.out)
    print(f"{guided.num_hard} without a correct response")
    for share, count in sorted(Counter(guided.shares.values()).items()):
        print(f"{count} guided by {share:.0%} of the solution")


if __name__ == "__main__":
    main()
