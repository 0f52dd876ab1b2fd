"""`gar data guide`: problems that a model never solves get the beginning of their expert solution."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gar.data.guide import WORDING, guide_problems
from gar.data.prepare import problem_row
from gar.data.problems import load_problems
from gar.data.prompts import PromptTemplate, render_problems
from gar.errors import ConfigError
from gar.records.files import atomic_file
from gar.settings import DEFAULT_SOURCE, ModelSettings, SourceSettings, TagSettings, VerifySettings
from gar.types import Problem

_TAGS = TagSettings()


def guide(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")],
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    model: str,
    samples: int = 8,
    seed: int = 0,
    max_new_tokens: int = 1024,
    template: PromptTemplate = "think-answer",
    wording: str = WORDING,
    reading: tyro.conf.OmitArgPrefixes[SourceSettings] = DEFAULT_SOURCE,
    tags: Annotated[TagSettings, tyro.conf.OmitArgPrefixes] = _TAGS,
    overwrite: bool = False,
) -> int:
    """Give problems without a right response the beginning of their expert solution: 1/4, 1/2 or 3/4 of it.

    The shortest with which some responses are right counts. The rest of the solution is the new expert solution.

    Every engine reads the file. Its column guided_share says how much of the solution the prompt holds.

    Args:
        source: A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name).
        out: Where to write: .jsonl.
        model: Folder or Hub id of the policy, or embedded.
        samples: Responses to each problem.
        seed: Seed of the responses.
        max_new_tokens: Longest response.
        template: Which response format the prompts ask for. The file has the prompts without it.
        wording: The new prompt, with {prompt} and {beginning}.
        reading: How to read the source.
        tags: Markers of the think-answer format.
        overwrite: Replace an existing file.
    """
    if out.suffix != ".jsonl" or (out.exists() and not overwrite):
        raise ConfigError(f"{out}: expected a new name that ends in .jsonl, or --overwrite.")
    if "{prompt}" not in wording or "{beginning}" not in wording or samples < 2:
        raise ConfigError("--wording needs {prompt} and {beginning}, and --samples at least 2.")
    from gar.evaluation.evaluate import Sampling, sample_groups
    from gar.models.load import load_policy
    from gar.verify import Verifier

    policy, tokenizer = load_policy(ModelSettings(path=model))
    settings = VerifySettings(tags=tags, format="boxed" if template == "boxed" else "think-answer")
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=1.0, top_p=1.0, seed=seed, batch_size=256)
    with Verifier.from_settings(settings) as verifier:

        def count_right(problems: Sequence[Problem]) -> list[int]:
            shown = render_problems(problems, template, tokenizer, tags.as_tags())
            groups = sample_groups(policy, tokenizer, shown, verifier, sampling, num_samples=samples, progress="guide")
            return [group.num_correct for group in groups]

        problems = load_problems(source, options=reading).problems
        guided = guide_problems(problems, count_right, num_samples=samples, wording=wording, tags=tags.as_tags())
    with atomic_file(out) as file:
        for problem in guided.problems:
            row = problem_row(problem) | {"guided_share": guided.shares.get(problem.id, 0.0)}
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    used = ", ".join(f"{count} with {share:.0%}" for share, count in sorted(Counter(guided.shares.values()).items()))
    Console(highlight=False).print(
        f"{out}: {len(problems):,} problems, {guided.num_hard:,} without a right response, of which "
        f"{len(guided.shares):,} are guided{f' ({used} of the solution)' if used else ''}.",
        markup=False,
        soft_wrap=True,
    )
    return 0
