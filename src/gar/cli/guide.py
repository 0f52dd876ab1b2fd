"""`gar data guide`: problems that a model never solves get the beginning of their expert solution."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import Files
from gar.cli.console import show
from gar.data.guide import WORDING, guide_problems
from gar.data.prepare import problem_row, write_json_lines
from gar.data.problems import load_problems
from gar.data.prompts import PromptTemplate, render_problems
from gar.errors import ConfigError
from gar.settings import ModelSettings, TagSettings, VerifySettings
from gar.types import Problem


class GuideArguments(Files):
    """Arguments of `gar data guide`."""

    model: str
    """Folder or Hub id of the policy, or embedded."""
    samples: Annotated[int, Field(ge=2)] = 8
    """Responses to each problem."""
    seed: int = 0
    """Seed of the responses."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 1024
    """Longest response."""
    template: PromptTemplate = "think-answer"
    """Which response format the prompts ask for. The file has the prompts without it."""
    wording: str = WORDING
    """The new prompt, with {prompt} and {beginning}."""
    tags: tyro.conf.OmitArgPrefixes[TagSettings] = TagSettings()


def guide(options: GuideArguments) -> int:
    """Replace problems without a correct response, and print how many."""
    options.check(".jsonl")
    if "{prompt}" not in options.wording or "{beginning}" not in options.wording:
        raise ConfigError("--wording needs {prompt} and {beginning}.")
    from gar.evaluation.evaluate import Sampling, sample_groups
    from gar.models.load import load_policy
    from gar.verify import Verifier

    policy, tokenizer = load_policy(ModelSettings(path=options.model))
    settings = VerifySettings(tags=options.tags, format="boxed" if options.template == "boxed" else "think-answer")
    sampling = Sampling(
        max_new_tokens=options.max_new_tokens, temperature=1.0, top_p=1.0, seed=options.seed, batch_size=256
    )
    with Verifier.from_settings(settings) as verifier:

        def count_right(problems: Sequence[Problem]) -> list[int]:
            shown = render_problems(problems, options.template, tokenizer, options.tags.as_tags())
            groups = sample_groups(
                policy, tokenizer, shown, verifier, sampling, num_samples=options.samples, progress="guide"
            )
            return [group.num_correct for group in groups]

        problems = load_problems(options.source, options=options).problems
        guided = guide_problems(
            problems, count_right, num_samples=options.samples, wording=options.wording, tags=options.tags.as_tags()
        )
    rows = (problem_row(each) | {"guided_share": guided.shares.get(each.id, 0.0)} for each in guided.problems)
    write_json_lines(rows, options.out)
    used = ", ".join(f"{count} with {share:.0%}" for share, count in sorted(Counter(guided.shares.values()).items()))
    show(
        f"{options.out}: {len(problems):,} problems, {guided.num_hard:,} without a correct response, of which "
        f"{len(guided.shares):,} are guided{f' ({used} of the solution)' if used else ''}.",
    )
    return 0
