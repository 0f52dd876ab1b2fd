"""Load and check the inputs of a run: model, tokenizer, problems, verifier.

The preflight and the evaluations need only these inputs and are here too. `gar.train.run` has the steps of a run.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import rich
from accelerate import PartialState
from rich.console import RenderableType
from rich.markup import escape
from trl import GRPOConfig

from gar import __version__
from gar.config import RunConfig, foreign_problems
from gar.data.lengths import fitting, prompt_lengths
from gar.data.problem_set import ProblemSet, StoredProblems, problem_file, read_problems
from gar.data.problems import evaluation_data
from gar.data.prompts import Renderer
from gar.data.rows import source_name
from gar.data.traps import trap_note
from gar.errors import ConfigError, RecordError, printable
from gar.evaluation.engines import TransformersEngine, evaluation_sampling, sample
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.grade import grade, judged_groups, pass_rates
from gar.evaluation.job import template_text
from gar.evaluation.preflight import preflight, render
from gar.integrations.trl.arguments import check_problems, sampling_of
from gar.integrations.trl.ranks import on_main
from gar.integrations.trl.sampling import VllmSample, mean_ratio
from gar.integrations.watchdog import ratio_fault
from gar.methods import METHODS
from gar.metrics import pass_at
from gar.models.adapters import check_adapter
from gar.models.families import is_sharded
from gar.models.generate import Sampling, check_prompt_lengths
from gar.models.load import load_policy
from gar.models.rope import context_of
from gar.reader import Reader
from gar.records import RunFolder, canonical_hash
from gar.records.run_folder import EVALUATION
from gar.response import Response
from gar.scoring.anchors import check_anchors
from gar.settings import DataSettings, PreflightSettings
from gar.step import Shaping
from gar.types import Problem
from gar.verify import Verifier

Say = Callable[[Any], None]

_LARGE_ON_CPU = 50_000_000
"""Parameters from which sampling on a CPU takes minutes."""


def show(shown: RenderableType) -> None:
    """Print a text with markup, or a table. Lines are broken for a terminal alone. Control characters are shown."""
    console = rich.get_console()
    shown = printable(shown) if isinstance(shown, str) else shown
    console.print(shown, highlight=False, soft_wrap=not console.is_terminal)


class RunInputs:
    """The inputs of one run.

    Args:
        config: Its settings.
        arguments: TRL's, made from `config`.
        shaping: Its method's plan.
        say: Receives messages for the user.
    """

    def __init__(self, config: RunConfig, arguments: GRPOConfig, shaping: Shaping, say: Say):
        self.config, self.say = config, say
        self._arguments = arguments
        if arguments.max_completion_length is None:
            raise ConfigError("trl.max_completion_length must be a number, got null")
        self._max_new_tokens: int = arguments.max_completion_length
        self._template = cast("dict[str, Any] | None", arguments.chat_template_kwargs)
        self._sampling = evaluation_sampling(
            config.evaluate,
            seed=config.seed,
            max_new_tokens=self._max_new_tokens,
            chat_template_kwargs=self._template,
        )
        self.verifier = Verifier.from_settings(config.verify)
        # 1. The problems, before the model: a bad row is found sooner.
        method, limit = METHODS[config.method], config.evaluate.max_problems
        self._evaluated = {
            source_name(source): evaluation_data(config.data, source).model_copy(update={"max_problems": limit})
            for source in config.evaluate.sources
        }
        problems, *others = self._read([config.data, *self._evaluated.values()])
        if method.trainer is None:
            check_problems(arguments, method, problems)
        self._warn(on_main(lambda: trap_note(problems.sample)))
        say(f"Problems: {len(problems):,} from {config.data.source}. Loading {config.model.path} ...")
        if note := foreign_problems(config):
            self._warn(f"Note: {note}")
        # 2. The model, and whether the adapter fits it.
        self.model, self.tokenizer = load_policy(config.model, trains_all=config.adapter.rank is None)
        """The policy. In a run with an adapter, `gar.train.run` replaces it by the model with the adapter."""
        self.adapter = check_adapter(self.model, config.adapter, config.model.revision)
        # 3. The problems as the policy sees them, which takes its tokenizer and its context.
        self.reader = Reader.from_settings(
            self.tokenizer,
            shaping.signal,
            config.verify,
            context=context_of(self.model.config),
            chat_template_kwargs=self._template,
        )
        self.problems = self._rendered(problems, config.data)
        """Training problems."""
        self.evaluation_sets = {
            name: self._rendered(each, data) for (name, data), each in zip(self._evaluated.items(), others, strict=True)
        }
        if method.alignment is not None:
            self._warn(on_main(lambda: check_anchors(self.problems, self.reader)))

    def _warn(self, text: str | None) -> None:
        """Print a text, if there is one, as a warning."""
        if text:
            self.say(f"[yellow]{escape(text)}[/]")

    def run_preflight(self, seen: Sequence[VllmSample]) -> None:
        """Run the preflight and print its report. Stop if both the report and `preflight.mode` require it.

        `seen` gets the responses that vLLM writes, if it does.
        """
        # A large model on a CPU takes minutes: it writes fewer responses, and the time left is printed.
        model, settings = self._policy_on_device(), self.config.preflight
        slow = model.device.type == "cpu" and model.num_parameters() > _LARGE_ON_CPU
        settings = _fewer(settings) if slow else settings
        number = min(settings.num_problems, len(self.problems))
        self._announce("Preflight", number, settings.num_samples)
        report = preflight(
            model,
            self.tokenizer,
            self.problems,
            self.verifier,
            settings,
            Sampling(
                max_new_tokens=self._max_new_tokens,
                temperature=self._arguments.temperature,
                top_p=self._arguments.top_p,
                seed=self.config.seed,
                chat_template_kwargs=self._template,
                generation_kwargs=sampling_of(self._arguments),
            ),
            self._say_left(number) if slow else None,
        )
        # Findings that stop the run are its error, and not printed twice.
        stops = self.config.preflight.mode == "stop"
        self.say(render(report, with_findings=not (stops and report.stops) or bool(report.interrupt)))
        if seen and self._arguments.vllm_importance_sampling_correction and not is_sharded(model):
            ratio = mean_ratio(model, seen, self._arguments)
            self.say(f"Mean importance sampling ratio of the policy to vLLM: {ratio:.4f}")
            if fault := ratio_fault(ratio):
                self._warn(f"WARN: {fault}")
        if report.interrupt:
            raise report.interrupt
        if stops:
            report.raise_if_stop()

    def _say_left(self, number: int) -> Callable[[int], None]:
        start = time.perf_counter()

        def say_part(done: int) -> None:
            seconds = (time.perf_counter() - start) / done
            left = f"about {seconds * (number - done):.0f} s left. Ctrl-C shows what there is."
            if done < number:
                self.say(f"Preflight: {done} of {number} problems after {seconds * done:.0f} s, {left}")

        return say_part

    def evaluate(self, folder: RunFolder, moment: str, *, step: int) -> None:
        """Evaluate the policy on each set, and write `evaluation/MOMENT/SET`, unless the same evaluation is there."""
        for place, (name, problems) in enumerate(self.evaluation_sets.items()):
            evaluation = EvaluationFolder(folder.path / EVALUATION / moment / name)
            identity = {"step": step, "place": place, **self._identity(name, problems)}
            if not self._is_evaluated(evaluation, identity):
                with evaluation.locked():
                    evaluation.begin(identity, problems, overwrite=True)
                    groups = self._sampled(name, problems)
                    evaluation.add_responses(problems, groups, seed=self.config.seed)
                    graded = grade(problems, groups, self.verifier, self.config.evaluate.pass_at_k)
                    evaluation.write_result(graded.samples(name), {"sets": {name: asdict(graded.numbers)}})

    def evaluation_metrics(self) -> dict[str, float]:
        """pass@k of the policy as it is now, under the names of metrics."""
        metrics: dict[str, float] = {}
        for name, problems in self.evaluation_sets.items():
            judged = judged_groups(self.verifier, problems, self._sampled(name, problems))
            rates = pass_rates(judged, self.config.evaluate.pass_at_k)
            metrics |= {pass_at(k, name): rate for k, rate in rates.items()}
        return metrics

    def _sampled(self, name: str, problems: Sequence[Problem]) -> list[list[Response]]:
        """The responses to each problem of a set. The seed is the same each time: common random numbers."""
        self._announce(f"Evaluation on {name}", len(problems), self.config.evaluate.num_samples)
        engine = TransformersEngine(self._policy_on_device(), self.tokenizer, self.config.verify.tags)
        return sample(engine, problems, self._sampling, progress="evaluate")

    def _identity(self, name: str, problems: ProblemSet) -> dict[str, Any]:
        """All that an evaluation depends on but the weights, with the names that `gar eval` gives them."""
        sampling, data = self._sampling, self._evaluated[name]
        return {
            "gar": __version__,
            "settings_sha256": canonical_hash(self.config.model_dump(mode="json")),
            "benchmark": {
                "name": name,
                "source": data.source,
                "num_problems": len(problems),
                "problems_sha256": problems.data_hash,
                "notes": [],
            },
            "prompt": {
                "template": data.template,
                "format": self.verifier.format,
                "prompts_sha256": canonical_hash([problem.prompt for problem in problems]),
                "chat_template_kwargs": template_text(self._template),
            },
            "verifier": self.config.verify.verifier,
            "sampling": {
                "num_samples": sampling.num_samples,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "seed": sampling.seed,
                "max_new_tokens": sampling.max_new_tokens,
            },
        }

    def _announce(self, what: str, num_problems: int, num_samples: int) -> None:
        self.say(
            f"{what}: {num_problems * num_samples:,} samples ({num_problems:,} problems, {num_samples} each) of up to "
            f"{self._max_new_tokens:,} tokens ..."
        )

    def _policy_on_device(self) -> Any:
        """Move the policy to its training device. The Trainer would do so only after the first samples."""
        return self.model.to(self._arguments.device)

    def _is_evaluated(self, evaluation: EvaluationFolder, identity: dict[str, Any]) -> bool:
        try:
            return evaluation.is_complete(identity)
        except RecordError as error:
            self._warn(f"{error} The policy is evaluated again.")
            return False

    def _read(self, wanted: list[DataSettings]) -> list[ProblemSet]:
        """The problems of the sources. The main process reads them, and the others open its files."""
        with contextlib.ExitStack() as files:  # at its end they are gone
            stored = on_main(lambda: [self._stored(data, files) for data in wanted])
            found = [each.open() for each in stored]
            PartialState().wait_for_everyone()
        return found

    def _stored(self, data: DataSettings, files: contextlib.ExitStack) -> StoredProblems:
        file = files.enter_context(problem_file(self._shared_folder()))
        stored = read_problems(data.source, file, options=data, max_problems=data.max_problems)
        for note in stored.notes:
            self._warn(note)
        return stored

    def _shared_folder(self) -> Path | None:
        """Where all ranks see a file. None for one process."""
        ranks = os.environ.get("WORLD_SIZE", "1")
        if ranks == "1":
            return None
        if os.environ.get("LOCAL_WORLD_SIZE", ranks) == ranks:
            return Path(tempfile.gettempdir())
        folder = Path(self.config.records.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _rendered(self, problems: ProblemSet, settings: DataSettings) -> ProblemSet:
        """The problems as the policy sees them, without prompts that are too long."""
        assert settings.template != "auto"  # `with_template` has decided
        render = Renderer.of(
            settings.template, self.tokenizer, self.config.verify.tags, with_messages=problems.with_messages
        )
        kept = on_main(lambda: self._fitting(problems, render, settings.max_prompt_tokens))
        if kept is not None:
            problems = problems.chosen(kept)
        return problems.rendered(render)

    def _fitting(self, problems: ProblemSet, render: Renderer, most: int | None) -> np.ndarray | None:
        """The positions of the prompts of at most `most` tokens, None for all. They must fit into the context."""
        context = context_of(self.model.config)
        fits = float("inf") if context is None else context - self._max_new_tokens
        lengths = prompt_lengths(problems, render, self.reader, enough=min(fits, most or fits))
        kept = np.arange(len(lengths)) if most is None else fitting(lengths, most)
        if len(kept) < len(lengths):
            self._warn(f"{len(lengths) - len(kept)} problems have prompts over {most} tokens: dropped.")
        check_prompt_lengths(
            self.model,
            lengths[kept],
            self._max_new_tokens,
            lambda i: self.reader.prompt_text(self.reader.encode(render.prompt(problems[int(kept[i])].prompt))[:24]),
        )
        return kept if len(kept) < len(lengths) else None


def _fewer(settings: PreflightSettings) -> PreflightSettings:
    """A quarter of the preflight's responses, unless their number was set."""
    if (settings.num_problems, settings.num_samples) != (16, 8):
        return settings
    return settings.model_copy(update={"num_problems": 8, "num_samples": 4})
