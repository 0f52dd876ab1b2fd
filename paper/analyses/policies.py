"""A model with the problems it answers, and groups of its responses: fresh ones, or those a run has recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from gar import DataError, DataSettings, Problem, Prompt, RunConfig, SignalSettings, Tags, TokenSequence, make_config
from gar.data import arithmetic, encode_prompt, load_problems, render_problems
from gar.models import ModelParts, Sampling, find_parts, generate_responses, load_policy
from gar.records import Run, RunFolder, is_run_folder, marked_checkpoints, open_run
from gar.scoring import Reader, SpanRule, context_of, judge
from gar.verify import Verifier
from paper.tasks.chains import TASKS, load_task, task_of_all, task_of_model


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A model, its tokenizer, its problems, and the settings of its run.

    Attributes:
        name: Name for titles.
        source: Where the weights come from.
        problems: Problems of the run, or of the data asked for.
        config: Settings of the run, or the defaults without a run.
        run: The run folder. None for a model.
        notes: Caveats for the reader.
    """

    name: str
    source: str
    model: Any
    tokenizer: Any
    parts: ModelParts
    problems: Sequence[Problem]
    config: RunConfig
    run: Run | None
    notes: Sequence[str]

    @property
    def task(self) -> str | None:
        """The chain task that the problems are of. None for other problems."""
        return task_of_all(self.problems)

    @property
    def tags(self) -> Tags:
        """Markers of the response format."""
        return self.config.verify.tags

    @property
    def signal(self) -> SignalSettings:
        """The run's signal settings, under the policy as it is."""
        return self.config.signal.model_copy(update={"policy": "current"})

    @property
    def span_rule(self) -> SpanRule:
        """Which tokens of a response are scored."""
        return SpanRule.from_settings(self.signal, self.config.verify, self.tokenizer)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, encoded as in the run."""
        return encode_prompt(self.tokenizer, prompt, chat_template_kwargs=self.config.trl.get("chat_template_kwargs"))

    def with_anchors(self) -> list[Problem]:
        """The problems that have an expert solution.

        Raises:
            DataError: No problem has one.
        """
        anchored = [problem for problem in self.problems if problem.anchors]
        if not anchored:
            raise DataError(
                f"{self.config.data.source}: none of its {len(self.problems)} problems has an expert solution to align "
                "with."
            )
        return anchored


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceGroup:
    """One problem with responses and an anchor that can be scored.

    Attributes:
        problem: The problem.
        texts: The responses.
        sequences: Their tokens.
        eligible: Which are right and in format.
        anchor: The first anchor that can be used.
    """

    problem: Problem
    texts: Sequence[str]
    sequences: Sequence[TokenSequence]
    eligible: Sequence[bool]
    anchor: TokenSequence


def load_policy_of(
    subject: str, *, data: str | None = None, split: str | None = None, settings: Mapping[str, Any] | None = None
) -> Policy:
    """The policy of a run (its final model and its problems), or a model as `gar train --model.path` takes it.

    Args:
        subject: A run folder, "embedded", a folder with a checkpoint, or a Hub id.
        data: A chain task, or problems as `gar train --data.source` takes them. None: the run's own, else the chain
            task that the model is for.
        split: Split of the data. None: the run's own, else test of a chain task, else train.
        settings: Values by section, as in a configuration file. They override the run's, or the defaults.

    Raises:
        GarError: The folder, the model or the problems cannot be read.
    """
    run = open_run(subject) if is_run_folder(subject) else None
    notes: list[str] = []
    config = run.config if run and run.config else RunConfig(data=DataSettings(template="plain"))
    if settings:
        values = config.model_dump(mode="json")
        values |= {section: values.get(section, {}) | dict(changes) for section, changes in settings.items()}
        config = make_config(values, source="options")
    source, replaced = _model_path(run, config, subject)
    notes += replaced
    if run is None:
        data = data or task_of_model(subject)
    changes: dict[str, Any] = {} if run and data not in TASKS else {"split": "test" if data in TASKS else "train"}
    changes |= {"source": data, "subset": None} if data else {}
    changes |= {"split": split} if split else {}
    config = config.model_copy(update={"data": config.data.model_copy(update=changes)})
    model, tokenizer = load_policy(
        config.model.model_copy(update={"path": source} | ({"revision": None} if run else {}))
    )
    tags = config.verify.tags
    assert config.data.template != "auto"
    if data and data in TASKS:
        asked = load_task(data, cast(arithmetic.Split, config.data.split))
    else:
        asked = list(load_problems(config.data.source, options=config.data, max_problems=config.data.max_problems))
    problems = render_problems(asked, config.data.template, tokenizer, tags)
    return Policy(
        name=run.name if run else Path(subject).name,
        source=source,
        model=model.eval(),
        tokenizer=tokenizer,
        parts=find_parts(model),
        problems=problems,
        config=config,
        run=run,
        notes=notes,
    )


def _model_path(run: Run | None, config: RunConfig, subject: str) -> tuple[str, list[str]]:
    if run is None:
        return subject, []
    final = run.path / "model"
    if (final / "config.json").is_file():
        return str(final), []
    whole = [path for path in marked_checkpoints(RunFolder(run.path)) if (path / "config.json").is_file()]
    if whole:
        return str(whole[-1]), [f"There is no final model: {whole[-1].name} is used instead."]
    return config.model.path, [
        f"The run has saved no model yet: {config.model.path}, from which it started, is used instead."
    ]


def sampled_groups(
    policy: Policy, problems: Sequence[Problem], *, num_samples: int, seed: int = 0
) -> list[SequenceGroup]:
    """Fresh responses to each problem, verified, with its anchor: those that can be scored.

    A problem without a usable anchor or response is left out.
    """
    reader = Reader(policy.tokenizer, policy.span_rule, context=context_of(policy.model.config))
    prompts = [policy.encode(problem.prompt) for problem in problems]
    most = policy.config.trl.get("max_completion_length", 64)
    sampling = Sampling(num_samples=num_samples, max_new_tokens=most, seed=seed)
    written = generate_responses(
        policy.model, policy.tokenizer, prompts, sampling, tags=policy.tags, progress="responses"
    )
    read = [reader.read(ids, one.ids) for ids, group in zip(prompts, written, strict=True) for one in group]
    with Verifier.from_settings(policy.config.verify) as verifier:
        judged = iter(judge(verifier, read, [problem for problem in problems for _ in range(num_samples)]))
    groups = []
    for problem, ids in zip(problems, prompts, strict=True):
        usable = [response for response in islice(judged, num_samples) if response.fault is None]
        anchors = reader.anchors(ids, [anchor.text for anchor in problem.anchors]).usable
        if anchors and usable:
            groups.append(
                SequenceGroup(
                    problem=problem,
                    texts=[response.text for response in usable],
                    sequences=[response.sequence for response in usable],
                    eligible=[response.is_correct for response in usable],
                    anchor=anchors[0],
                )
            )
    return groups
