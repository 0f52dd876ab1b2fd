"""The main job, from a configuration to a run folder: load, look, measure, train, measure again, summarise.

On several ranks all of them train; the main process alone looks, measures and writes while the others wait.
"""

import contextlib
import dataclasses
import json
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import rich
import transformers
from accelerate import PartialState
from rich.markup import escape
from safetensors import SafetensorError
from transformers import PrinterCallback, ProgressCallback

from gar.config import RunConfig, dump_config
from gar.data.arithmetic import Split
from gar.data.prompts import drop_long_prompts, render_problems
from gar.data.run_problems import EMBEDDED, load_run_problems
from gar.errors import ConfigError, GarError, RecordError
from gar.evaluation.evaluate import SetResult, evaluate_policy
from gar.evaluation.preflight import preflight, render
from gar.integrations.tracking import tracker
from gar.integrations.trl.arguments import grpo_arguments, sampling_of
from gar.integrations.trl.callbacks import RunCallback
from gar.integrations.trl.ranks import check_ranks, is_main, lost_rank_named, name_termination, on_main
from gar.integrations.trl.refusals import inexact_resumes
from gar.integrations.trl.trainer import GARTrainer
from gar.integrations.watchdog import Collapse, Watchdog
from gar.methods import METHODS, resolve_signal, unread_settings
from gar.models.adapters import check_adapter, is_adapted, lora_config, save_adapter, save_merged
from gar.models.load import load_policy
from gar.records import RolloutRecord, RunFolder, canonical_hash
from gar.records.checkpoints import last_checkpoint, remove_later
from gar.records.files import json_text
from gar.records.folders import publish_folder, staging_folder
from gar.records.lock import only_writer
from gar.resuming import Resumption, read_resumption
from gar.rollouts.generate import check_prompts, context_length, encode_prompt
from gar.scoring.anchors import usable_anchors
from gar.settings import DataSettings
from gar.spans import SequenceReader
from gar.types import Problem
from gar.verify import Verifier

Say = Callable[[Any], None]

_UNREADABLE = (
    OSError,
    ValueError,
    RuntimeError,
    KeyError,
    TypeError,
    EOFError,
    pickle.UnpicklingError,
    SafetensorError,
)
"""What torch, safetensors and the Trainer raise over a damaged checkpoint."""


def train(config: RunConfig, *, command: Sequence[str] = (), say: Say = rich.print) -> RunFolder:
    """Train as configured, in a new run folder.

    Args:
        config: Every setting.
        command: The command line, for the record.
        say: Receives what a person wants to read: strings and rich renderables.

    Returns:
        The run folder: metrics, rollouts, evaluations, checkpoints, and the final model in `model/`; of an adapter the
        merged model there, and itself in `adapter/`.

    Raises:
        GarError: Something in the settings, the data or the model is wrong, before the first step.
        PreflightError: The first rollouts carry no signal.
        CollapseError: The policy has collapsed, and `watchdog.mode` is "stop".
    """
    with lost_rank_named():
        return _Run(config, say).start(command)


def resume(path: str | Path, *, override: bool = False, say: Say = rich.print) -> RunFolder:
    """Go on with an interrupted run from its last whole checkpoint; the result is that of an uninterrupted run.

    After the last step nothing is trained, and what is missing is made: final model, evaluation, figures, summary.

    Args:
        path: A run folder.
        override: Go on although settings, data or records have changed, and record that in `run.json`.
        say: As in `train`.

    Raises:
        ConfigError: `config.yaml` is empty, cut off, or edited without `override`.
        DataError: The training problems have changed, without `override`.
        LockedError: Another process writes into that folder.
        RecordError: `path` is no run folder, its run is finished, or none of its checkpoints is whole.
    """
    folder = RunFolder.open(path)
    if folder.read_run().status == "finished":
        raise RecordError(f"{path}: this run is finished; there is nothing to resume. Its model is in {path}/model.")
    resumption = read_resumption(folder, override=override)
    with lost_rank_named():
        return _Run(resumption.config, say).go_on(resumption)


def dry_run(config: RunConfig, *, say: Say = rich.print) -> None:
    """Show the resolved configuration and the preflight, and stop before anything is written."""
    run = _Run(config, say)
    run.say(dump_config(config).rstrip())
    run.look()


class _Run:
    """The parts of one run, loaded once, and its steps in order."""

    def __init__(self, config: RunConfig, say: Say):
        _quiet_libraries()
        self.config = config
        self.arguments = grpo_arguments(config, Path(config.records.folder) / "dry-run")
        check_ranks(self.arguments, generates_on_main=config.preflight.mode != "off" or bool(config.evaluate.sources))
        name_termination()
        self.say = say if is_main() else _say_nothing
        unread = unread_settings(METHODS[config.method], dict(config))
        if unread:
            self.say(f"[dim]Not read by this run of {config.method}: {', '.join(unread)}.[/]")
        self.adapter = lora_config(config.adapter, config.model.revision)
        self.model, self.tokenizer = load_policy(config.model)
        check_adapter(self.model, config.adapter)
        self.tags = config.verify.tags.as_tags()
        self.problems = self._load(config.data, self.say)
        self.evaluation_sets = {_set_name(source): self._load_set(source) for source in config.evaluate.sources}
        self._check_lengths()
        self.verifier = Verifier.from_settings(config.verify)

    def start(self, command: Sequence[str]) -> RunFolder:
        """A new run folder, from the first look to the summary."""
        self.look()
        folder = RunFolder(on_main(lambda: self._new_folder(command)))
        if not folder.path.is_dir():
            raise RecordError(
                f"{folder.path}: the main process has made this run folder, and another does not see it. Ranks on "
                "several machines need records.folder on a file system that they share."
            )
        self.say(f"Run folder: {folder.path}")
        with _only_writer(folder):
            return self._run(folder, None)

    def go_on(self, resumption: Resumption) -> RunFolder:
        """An interrupted run, from its last whole checkpoint."""
        ranks = PartialState().num_processes
        with _only_writer(resumption.folder):
            found = on_main(lambda: resumption.with_data(self._data_hash()).with_checkpoint(ranks))
            for note in found.notes:
                self.say(f"[yellow]{escape(note)}[/]")
            self.say(f"Resuming {found.folder.path} after step {found.step}.")
            return self._run(found.folder, found)

    def look(self) -> None:
        """The preflight, as its mode says."""
        if self.config.preflight.mode != "off":
            on_main(self._look)

    def _new_folder(self, command: Sequence[str]) -> Path:
        config = self.config
        name = (
            config.records.name or f"{config.method}-{_set_name(config.data.source)}-{time.strftime('%Y%m%d-%H%M%S')}"
        )
        folder = RunFolder.create(config.records.folder, name)
        folder.write_run(
            seed=config.seed,
            command=command,
            config=config.model_dump(mode="json"),
            config_text=dump_config(config),
            data_hash=self._data_hash(),
        )
        return folder.path

    def _data_hash(self) -> str:
        return canonical_hash([dataclasses.asdict(problem) for problem in self.problems])

    def _look(self) -> None:
        settings = self.config.preflight
        report = preflight(
            self.model,
            self.tokenizer,
            self.problems,
            self.verifier,
            settings,
            needs_alignment=METHODS[self.config.method].needs_alignment,
            seed=self.config.seed,
            max_new_tokens=self._max_new_tokens(),
            temperature=self.arguments.temperature,
            top_p=self.arguments.top_p,
            chat_template_kwargs=self._chat_template_kwargs(),
            generation_kwargs=sampling_of(self.arguments),
        )
        self.say(render(report))
        if settings.mode == "stop":
            report.raise_if_stop()

    def _run(self, folder: RunFolder, resumption: Resumption | None) -> RunFolder:
        with _status_of(folder, self.say) if is_main() else contextlib.nullcontext(), self.verifier:
            self.arguments = grpo_arguments(self.config, folder.path)
            if self.config.evaluate.before:
                on_main(lambda: self._evaluate(folder, "before", step=0))
            with tracker(self.config, folder) if is_main() else contextlib.nullcontext() as track:
                callback = self._callback(folder, track, resumption)
                trainer = self._trainer(folder, callback)
                self._take_adapter(trainer)
                with _loading(resumption, callback), lost_rank_named():
                    trainer.train(resume_from_checkpoint=resumption.checkpoint if resumption else None)
            if not is_adapted(self.model):
                self._write_folder(folder.path / "model", lambda staged: trainer.save_model(str(staged)))
            on_main(lambda: self._finish(folder, step=trainer.state.global_step))
        return folder

    def _write_folder(self, target: Path, write: Callable[[Path], None]) -> None:
        """On all ranks: a folder that is whole or absent, whenever the run is killed."""
        staged = on_main(lambda: staging_folder(target))
        write(staged)
        PartialState().wait_for_everyone()
        on_main(lambda: publish_folder(staged, target))

    def _finish(self, folder: RunFolder, *, step: int) -> None:
        """After training: adapter and merged model, where there is an adapter; evaluation; summary."""
        if is_adapted(self.model):
            staged = staging_folder(folder.path / "adapter")
            save_adapter(self.model, self.tokenizer, staged)
            publish_folder(staged, folder.path / "adapter")
        self._evaluate(folder, "after", step=step)
        if is_adapted(self.model):
            staged = staging_folder(folder.path / "model")
            save_merged(self.model, self.tokenizer, staged)
            publish_folder(staged, folder.path / "model")
        self._summarise(folder)

    def _callback(
        self, folder: RunFolder, track: Callable[[dict[str, float], int], None] | None, resumption: Resumption | None
    ) -> RunCallback:
        """Rotation is ours: the Trainer's removes an older checkpoint before the new one is whole."""
        keep, self.arguments.save_total_limit = self.arguments.save_total_limit, None
        return RunCallback(
            folder,
            tracker=track,
            evaluate=lambda step: on_main(self._evaluation_metrics),
            evaluate_every=self.config.evaluate.every_steps if self.evaluation_sets else 0,
            keep_checkpoints=keep,
            on_loaded=(lambda: self._cut(resumption)) if resumption else None,
        )

    def _cut(self, resumption: Resumption) -> None:
        """Drop what came after the checkpoint, now that nothing but training can fail."""
        folder, step = resumption.folder, resumption.step
        folder.truncate_metrics(step)
        folder.delete_rollouts(step)
        remove_later(folder, step)
        if resumption.changes:
            config = self.config.model_dump(mode="json")
            folder.record_override(resumption.changes, step=step, config=config, data_hash=self._data_hash())
        folder.update_run(status="running")

    def _trainer(self, folder: RunFolder, callback: RunCallback) -> GARTrainer:
        for reason in inexact_resumes(self.arguments):
            self.say(f"[yellow]{reason}[/]")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Not read by")  # said at the start, of all sections
            trainer = self._make_trainer(callback, self._on_rollouts(folder))
        for printing in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printing)
        return trainer

    def _make_trainer(
        self, callback: RunCallback, on_rollouts: Callable[[int, list[RolloutRecord]], None]
    ) -> GARTrainer:
        config = self.config
        return GARTrainer(
            self.model,
            problems=self.problems,
            verifier=self.verifier,
            args=self.arguments,
            processing_class=self.tokenizer,
            method=config.method,
            signal=config.signal,
            reward=config.reward,
            advantage=config.advantage,
            loss=config.loss,
            judge=config.judge,
            on_rollouts=on_rollouts,
            callbacks=[callback],
            peft_config=self.adapter,
        )

    def _on_rollouts(self, folder: RunFolder) -> Callable[[int, list[RolloutRecord]], None]:
        """What the main process does with each generation: write it, and look whether the policy has collapsed."""

        def tell(collapse: Collapse) -> None:
            folder.write_json("watchdog.json", dataclasses.asdict(collapse))
            self.say(f"[bold yellow]WATCHDOG: {escape(collapse.text)}[/]")

        watchdog = Watchdog(self.config.watchdog, tell)

        def receive(step: int, rows: list[RolloutRecord]) -> None:
            if self.config.records.rollouts:
                folder.write_rollouts(step, rows)
            watchdog.look(step, rows)

        return receive

    def _take_adapter(self, trainer: GARTrainer) -> None:
        """From here on the policy is the model with its adapter, if it has one."""
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        if is_adapted(self.model):
            trained, total = self.model.get_nb_trainable_parameters()
            self.say(f"Adapter: {trained:,} of {total:,} parameters are trained ({trained / total:.1%}).")

    def _evaluate(self, folder: RunFolder, name: str, *, step: int) -> None:
        """Measure and write `evaluation/NAME.json`, unless it holds just that already."""
        if not self.evaluation_sets:
            return
        inputs = [self.config.model_dump(mode="json"), *map(self._ids, self.evaluation_sets)]
        head = {"step": step, "inputs_hash": canonical_hash(inputs)}
        if self._is_measured(folder, f"evaluation/{name}.json", head):
            return
        sets = {set_name: result.to_json() for set_name, result in self._results()}
        folder.write_json(f"evaluation/{name}.json", {**head, "sets_hash": _sets_hash(sets), "sets": sets})

    def _is_measured(self, folder: RunFolder, relative: str, head: dict[str, Any]) -> bool:
        if not (folder.path / relative).exists():
            return False
        try:
            there = folder.read_json(relative)
        except RecordError as error:
            self.say(f"[yellow]{escape(str(error))} It is measured again.[/]")
            return False
        if {name: there.get(name) for name in head} != head:
            return False
        if there.get("sets_hash") == _sets_hash(there.get("sets")):
            return True
        self.say(f"[yellow]{escape(str(folder.path / relative))} is not what was written. It is measured again.[/]")
        return False

    def _ids(self, set_name: str) -> list[str]:
        return [problem.id for problem in self.evaluation_sets[set_name]]

    def _evaluation_metrics(self) -> dict[str, float]:
        return {
            f"eval/{name}/pass@{k}": value for name, result in self._results() for k, value in result.pass_at.items()
        }

    def _results(self) -> Iterator[tuple[str, SetResult]]:
        """The policy as it is now on each evaluation set. The same seed before and after: common random numbers."""
        for name, problems in self.evaluation_sets.items():
            yield (
                name,
                evaluate_policy(
                    self.model,
                    self.tokenizer,
                    problems,
                    self.verifier,
                    self.config.evaluate,
                    seed=self.config.seed,
                    max_new_tokens=self._max_new_tokens(),
                    chat_template_kwargs=self._chat_template_kwargs(),
                    progress=f"evaluate {name}",
                ),
            )

    def _summarise(self, folder: RunFolder) -> None:
        from gar.analysis.learning_curve import learning_curve
        from gar.analysis.summary import render_summary, summarise

        summary = summarise(folder)
        figures = learning_curve(folder.path, folder.path / "figures" / "learning-curve")
        folder.update_run(status="finished", summary=summary)
        self.say(render_summary(summary))
        self.say(f"Run folder      {folder.path}")
        self.say(f"Final model     {folder.path / 'model'}")
        if is_adapted(self.model):
            self.say(f"Adapter         {folder.path / 'adapter'}")
        self.say(f"Learning curve  {figures[0]}")

    def _load(self, settings: DataSettings, say: Say) -> list[Problem]:
        loaded = load_run_problems(settings)
        for note in loaded.notes:
            say(f"[yellow]{escape(note)}[/]")
        problems = render_problems(loaded.problems, settings.template, self.tokenizer, self.tags)
        if settings.max_prompt_tokens is not None:
            problems, num_dropped = drop_long_prompts(problems, self.tokenizer, settings.max_prompt_tokens)
            if num_dropped:
                say(
                    f"[yellow]{num_dropped} problems have prompts over {settings.max_prompt_tokens} tokens: dropped.[/]"
                )
        return problems

    def _load_set(self, source: str) -> list[Problem]:
        embedded = source in get_args(Split) and not Path(source).exists()
        base = self.config.data
        own = {"source": EMBEDDED, "split": source} if embedded else {"source": source}
        return self._load(base.model_copy(update={**own, "max_problems": self.config.evaluate.max_problems}), self.say)

    def _check_lengths(self) -> None:
        """Refuse prompts beyond the model's context, and leave out anchors that could not be scored."""
        template = self._chat_template_kwargs()
        for problems in (self.problems, *self.evaluation_sets.values()):
            prompts = [encode_prompt(self.tokenizer, p.prompt, chat_template_kwargs=template) for p in problems]
            check_prompts(self.model, self.tokenizer, prompts, self._max_new_tokens())
        method, verify = METHODS[self.config.method], self.config.verify
        if method.alignment is None:
            return
        signal = resolve_signal(method, self.config.signal)
        found = usable_anchors(
            self.problems,
            self.tokenizer,
            SequenceReader.from_settings(self.tokenizer, signal, verify, context=context_length(self.model)),
            chat_template_kwargs=template,
        )
        self.problems = found.problems
        if str(found):
            self.say(f"[yellow]{escape(str(found))}[/]")

    def _chat_template_kwargs(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self.arguments.chat_template_kwargs)

    def _max_new_tokens(self) -> int:
        limit = self.arguments.max_completion_length
        if limit is None:
            raise ConfigError("trl.max_completion_length must be a number, got null")
        return limit


@contextlib.contextmanager
def _only_writer(folder: RunFolder) -> Iterator[None]:
    """The main process takes the lock of a run folder for all ranks; where it is refused, all of them end."""
    with contextlib.ExitStack() as held:
        on_main(lambda: held.enter_context(only_writer(folder.path)))
        yield


@contextlib.contextmanager
def _status_of(folder: RunFolder, say: Say) -> Iterator[None]:
    """Record how the run ended, whatever ends it. A full disk must not hide what did."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(RecordError):
            folder.update_run(status="interrupted")
        checkpoint = last_checkpoint(folder)
        kept = f"its last whole checkpoint is {checkpoint.name}" if checkpoint else "it has no whole checkpoint yet"
        say(f"[yellow]Interrupted; {kept}. Go on with: gar train --resume {folder.path}[/]")
        raise
    except BaseException as error:
        with contextlib.suppress(RecordError):
            folder.update_run(status="failed")
        # On a full disk torch.save raises from its ZIP writer.
        unwritten = isinstance(error, RuntimeError) and (
            "inline_container.cc" in str(error) or "StreamWriter" in str(error)
        )
        if unwritten or (isinstance(error, (OSError, SafetensorError)) and not isinstance(error, RecordError)):
            raise RecordError(
                f"{folder.path}: a file could not be written or read: {error}. What was written before is intact; "
                f"is the disk full? Then make room, and go on with: gar train --resume {folder.path}"
            ) from error
        raise


@contextlib.contextmanager
def _loading(resumption: Resumption | None, callback: RunCallback) -> Iterator[None]:
    """What goes wrong until the checkpoint is loaded is a fault of the checkpoint."""
    try:
        yield
    except _UNREADABLE as error:
        if resumption is None or resumption.checkpoint is None or callback.loaded or isinstance(error, GarError):
            raise
        words = str(error).strip().partition("\n")[0]
        raise RecordError(
            f"{resumption.checkpoint}: cannot be loaded: {type(error).__name__}: {words}. Nothing was changed. Without "
            "this folder the checkpoint before it is resumed from."
        ) from error


def _sets_hash(sets: Any) -> str:
    """Tells the results of an evaluation, times left out, from those of a file that was damaged since."""
    results = json.loads(json_text(sets))
    if isinstance(results, dict):
        for result in results.values():
            if isinstance(result, dict):
                result.pop("seconds", None)
    return canonical_hash(results)


def _say_nothing(text: Any) -> None:
    """What ranks other than the main process say."""


def _set_name(source: str) -> str:
    return Path(source).stem if source.endswith((".jsonl", ".parquet")) else source.rpartition("/")[2]


def _quiet_libraries() -> None:
    """Deprecations inside transformers and TRL are not the user's to act on; loading bars are noise."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|accelerate)\.")
    transformers.utils.logging.disable_progress_bar()
