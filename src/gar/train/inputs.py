"""Load and check the inputs of a run: model, tokenizer, problems, verifier.

The preflight and the evaluations need only these inputs and are here too. `gar.train.run` has the steps of a run.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from rich.markup import escape
from trl import GRPOConfig

from gar.config import RunConfig
from gar.data.problems import LoadedProblems, evaluation_data, load_run_problems
from gar.data.prompts import drop_long_prompts, render_problems
from gar.data.rows import source_name
from gar.errors import ConfigError
from gar.evaluation.evaluate import Sampling, SetResult, evaluate_policy
from gar.evaluation.preflight import preflight, render
from gar.integrations.trl.arguments import sampling_of
from gar.integrations.trl.flags import check_problems
from gar.methods import METHODS
from gar.models.adapters import check_adapter, lora_config
from gar.models.load import load_policy
from gar.reader import Reader
from gar.records import RunFolder, canonical_hash
from gar.rollouts.generate import check_prompts, context_length
from gar.scoring.anchors import check_anchors
from gar.settings import DataSettings, PreflightSettings
from gar.step import Shaping
from gar.types import Problem
from gar.verify import Verifier

Say = Callable[[Any], None]

_LARGE_ON_CPU = 50_000_000
"""Parameters from which sampling on a CPU takes minutes."""


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
        self.adapter = lora_config(config.adapter, config.model.revision)
        self._tags = config.verify.tags
        self.verifier = Verifier.from_settings(config.verify)
        method = METHODS[config.method]
        loaded = load_run_problems(config.data)  # before the model: a bad row is found sooner
        if method.trainer is None:
            check_problems(arguments, method, loaded.problems)
        evaluated = {source: self._evaluation_data(source) for source in config.evaluate.sources}
        say(f"Problems: {len(loaded.problems):,} from {config.data.source}. Loading {config.model.path} ...")
        self.model, self.tokenizer = load_policy(config.model)
        """The policy. In a run with an adapter, `gar.train.run` replaces it by the model with the adapter."""
        check_adapter(self.model, config.adapter)
        self.problems = self._rendered(loaded, config.data)
        self.reader = Reader.from_settings(
            self.tokenizer,
            shaping.signal,
            config.verify,
            context=context_length(self.model),
            chat_template_kwargs=self._template,
        )
        self.evaluation_sets = {
            source_name(source): self._rendered(problems, data) for source, (problems, data) in evaluated.items()
        }
        self._check_lengths()

    def data_hash(self) -> str:
        """Hash of the training problems with their anchors: the same for every method."""
        return _problems_hash(self.problems)

    def run_preflight(self) -> None:
        """Run the preflight and print its report. Stop if both the report and `preflight.mode` require it."""
        model, settings = self._policy_on_device(), self.config.preflight
        if model.device.type == "cpu" and model.num_parameters() > _LARGE_ON_CPU:
            settings = _fewer(settings)
        self._announce("Preflight", min(settings.num_problems, len(self.problems)), settings.num_samples)
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
        )
        stops = self.config.preflight.mode == "stop"
        self.say(render(report, with_findings=not (stops and report.stops)))
        if stops:
            report.raise_if_stop()

    def evaluate(self, folder: RunFolder, moment: str, *, step: int) -> None:
        """Evaluate the policy, and write numbers and samples to `evaluation/`, unless the same evaluation is there."""
        if not self.evaluation_sets:
            return
        hashes = [_problems_hash(problems) for problems in self.evaluation_sets.values()]
        identity = canonical_hash([step, self.config.model_dump(mode="json"), *hashes])
        if self._is_evaluated(folder, moment, identity):
            return
        results = dict(self._results())
        sets = {name: result.to_json() for name, result in results.items()}
        samples = [sample for name, result in results.items() for sample in result.samples(name)]
        folder.write_samples(moment, samples)  # first: the numbers mark the end
        folder.write_json(f"evaluation/{moment}.json", {"step": step, "identity": identity, "sets": sets})

    def evaluation_metrics(self) -> dict[str, float]:
        """pass@k of the policy as it is now, under the names of metrics."""
        return {
            f"eval/{name}/pass@{k}": value for name, result in self._results() for k, value in result.pass_at.items()
        }

    def _results(self) -> Iterator[tuple[str, SetResult]]:
        """The results by set. The seed is the same before and after training: common random numbers."""
        for name, problems in self.evaluation_sets.items():
            number = len(problems[: self.config.evaluate.max_problems])
            self._announce(f"Evaluation on {name}", number, self.config.evaluate.num_samples)
            result = evaluate_policy(
                self._policy_on_device(),
                self.tokenizer,
                problems,
                self.verifier,
                self.config.evaluate,
                seed=self.config.seed,
                max_new_tokens=self._max_new_tokens,
                chat_template_kwargs=self._template,
            )
            yield name, result

    def _announce(self, what: str, num_problems: int, num_samples: int) -> None:
        self.say(
            f"{what}: {num_problems * num_samples:,} samples ({num_problems:,} problems, {num_samples} each) of up to "
            f"{self._max_new_tokens:,} tokens ..."
        )

    def _policy_on_device(self) -> Any:
        """Move the policy to its training device. The Trainer would do so only after the first samples."""
        return self.model.to(self._arguments.device)

    def _is_evaluated(self, folder: RunFolder, moment: str, identity: str) -> bool:
        manifest, numbers = folder.manifest, f"evaluation/{moment}.json"
        if numbers not in manifest.entries:
            return False
        for name in (numbers, f"evaluation/{moment}.parquet"):
            if fault := manifest.fault(name):
                self.say(f"[yellow]{escape(f'{folder.path}: {fault}')}. The policy is evaluated again.[/]")
                return False
        return json.loads(manifest.read(numbers)).get("identity") == identity

    def _rendered(self, loaded: LoadedProblems, settings: DataSettings) -> list[Problem]:
        """Render the problems as the policy sees them, and drop problems with prompts that are too long."""
        for note in loaded.notes:
            self.say(f"[yellow]{escape(note)}[/]")
        assert settings.template != "auto"  # `with_template` has decided
        problems = render_problems(loaded.problems, settings.template, self.tokenizer, self._tags)
        limit = settings.max_prompt_tokens
        if limit is not None:
            problems, num_dropped = drop_long_prompts(problems, self.tokenizer, limit)
            if num_dropped:
                self.say(f"[yellow]{num_dropped} problems have prompts over {limit} tokens: dropped.[/]")
        return problems

    def _evaluation_data(self, source: str) -> tuple[LoadedProblems, DataSettings]:
        limit = self.config.evaluate.max_problems
        data = evaluation_data(self.config.data, source).model_copy(update={"max_problems": limit})
        return load_run_problems(data), data

    def _check_lengths(self) -> None:
        """Reject prompts beyond the model's context, and say how many expert solutions cannot be scored."""
        for problems in (self.problems, *self.evaluation_sets.values()):
            prompts = [self.reader.encode(problem.prompt) for problem in problems]
            check_prompts(self.model, self.tokenizer, prompts, self._max_new_tokens)
        reads_anchors = METHODS[self.config.method].alignment is not None
        if reads_anchors and (note := check_anchors(self.problems, self.reader)):
            self.say(f"[yellow]{escape(note)}[/]")


def _fewer(settings: PreflightSettings) -> PreflightSettings:
    """A quarter of the preflight's responses, unless their number was set."""
    if (settings.num_problems, settings.num_samples) != (16, 8):
        return settings
    return settings.model_copy(update={"num_problems": 8, "num_samples": 4})


def _problems_hash(problems: Sequence[Problem]) -> str:
    return canonical_hash([dataclasses.asdict(problem) for problem in problems])
