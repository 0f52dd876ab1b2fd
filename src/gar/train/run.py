"""The training job, from a configuration to a run folder: load, preflight, evaluate, train, evaluate again, summarize.

All ranks train. The main process runs the preflight, evaluates and writes, while the others wait or help.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from rich.markup import escape
from transformers import PrinterCallback, ProgressCallback

from gar.config import RunConfig, dump_yaml, with_template
from gar.data.rows import source_name
from gar.errors import ConfigError, RecordError
from gar.integrations.trl.arguments import grpo_arguments, in_folder, inexact_resumes, unread_fields
from gar.integrations.trl.callbacks import RunCallback
from gar.integrations.trl.ranks import (
    check_ranks,
    check_saves_whole_model,
    is_main,
    lost_rank_named,
    on_main,
    refuse_sharded_adapter,
    refuse_sharded_evaluation,
    shards_by,
)
from gar.integrations.trl.sampling import VllmSample, colocated_vllm, sample_on_main
from gar.integrations.trl.trainer import GARTrainer
from gar.integrations.watchdog import Watchdog
from gar.interrupts import Interrupts
from gar.methods import METHODS, unread_settings
from gar.methods.parts import RunParts
from gar.models.adapters import is_adapted, save_adapter, save_merged
from gar.models.load import load_policy, quiet_libraries
from gar.output import lasting_output
from gar.records import RunFolder, open_run, write_atomic
from gar.records.checkpoints import FoundCheckpoint
from gar.records.lock import writer_lock
from gar.records.run_folder import check_free
from gar.train.checks import check_before_loading
from gar.train.inputs import RunInputs, Say, show
from gar.train.resume import checkpoint_errors, resume_point, resumed_config, status_of, unfinished_run

_CURVE = "figures/learning-curve"


@lasting_output()
def train(
    config: RunConfig,
    *,
    command: Sequence[str] = (),
    say: Say = show,
    interrupts: Interrupts | None = None,
    checked: bool = False,
) -> RunFolder:
    """Train as configured, in a new run folder.

    Args:
        config: Every setting.
        command: The command line, for the record.
        say: Receives messages for the user: strings and rich renderables. An error that it raises ends the run, but
            not one that has recorded its end.
        interrupts: Requests to end after the running step, with a checkpoint. `gar train` makes them of signals.
        checked: Whether `check_before_loading` has accepted the settings.

    Returns:
        The run folder: metrics, rollouts, evaluations, checkpoints, and the final model in `model/`. A run with an
        adapter has the merged model there, and the adapter in `adapter/`.

    Raises:
        GarError: Something in the settings, the data or the model is wrong, before the first step.
        PreflightError: The first rollouts carry no signal.
        CollapseError: The policy has collapsed, and `watchdog.mode` is "stop".
        Interrupted: After a request to end.
    """
    with lost_rank_named():
        run = _Run(config, say, interrupts, checked=checked)
        records = config.records
        if records.name:
            on_main(lambda: check_free(Path(records.output_dir, records.name or "")))
        trainer = next(run.trainers)
        run.preflight(trainer)
        folder = run.new_folder()
        with _writer_lock(folder):
            on_main(lambda: run.record_start(folder, command))
            return run.finish(folder, trainer)


@lasting_output()
def resume(
    path: str | Path,
    *,
    allow_config_change: bool = False,
    say: Say = show,
    interrupts: Interrupts | None = None,
) -> RunFolder:
    """Resume an interrupted run from its last whole checkpoint. An uninterrupted run gives the same result.

    If all steps are done, only the missing results are made: final model, evaluation, figures, summary. A run of a
    method that cannot be resumed begins again at its first step.

    Args:
        path: A run folder.
        allow_config_change: Resume even if settings or data have changed, and record that in `run.json`.
        say: As in `train`.
        interrupts: As in `train`.

    Raises:
        ConfigError: `config.yaml` was cut off, or edited without `allow_config_change`.
        DataError: The training problems have changed, without `allow_config_change`.
        LockedError: Another process is writing to that folder.
        RecordError: `path` is not a run folder, its run is finished, or none of its checkpoints is whole.
    """
    folder = unfinished_run(path)
    config = resumed_config(folder, allow_config_change=allow_config_change)
    with lost_rank_named():
        run = _Run(config, say, interrupts)
        with _writer_lock(folder):
            found = run.resume_point(folder, allow_config_change=allow_config_change)
            run.say(f"Resuming {folder.path} after step {found.step}.")
            return run.finish(folder, next(run.trainers), found)


def dry_run(config: RunConfig, *, say: Say = show, checked: bool = False) -> None:
    """Show the resolved configuration and the preflight, and stop before anything is written. Arguments as `train`."""
    run = _Run(config, say, checked=checked)
    run.say(dump_yaml(run.config.model_dump(mode="json")).rstrip())
    run.preflight(next(run.trainers))


class _Run:
    """A loaded run, and its stages.

    Attributes:
        trainers: The trainer of each phase of the method. Each takes over `inputs.model`, which may get an adapter.
        callback: Writes to the run folder. Missing until `finish` has one.
    """

    callback: RunCallback

    def __init__(self, config: RunConfig, say: Say, interrupts: Interrupts | None = None, *, checked: bool = False):
        quiet_libraries()
        config = with_template(config)
        if not checked:
            check_before_loading(config)
        self.config = config
        self.arguments, self._shaping = grpo_arguments(config)
        check_ranks(self.arguments)
        self.say: Say = say if is_main() else lambda text: None
        unread = _unread(config)
        if unread:
            self.say(f"[dim]Not read by this run of {config.method}: {', '.join(unread)}.[/]")
        self.inputs = RunInputs(config, self.arguments, self._shaping, self.say)
        if self.inputs.adapter or is_adapted(self.inputs.model):
            refuse_sharded_adapter(self.arguments)
        if self.inputs.evaluation_sets and config.evaluate.eval_steps:
            refuse_sharded_evaluation(self.arguments)
        self._interrupts = interrupts or Interrupts()
        # `RunCallback` rotates checkpoints: the Trainer would remove an old one before the new one is whole.
        self._keep_checkpoints, self.arguments.save_total_limit = self.arguments.save_total_limit, None
        self.trainers = self._trainers()

    def preflight(self, trainer: Any) -> None:
        """Run the preflight, if it is on. `trainer` is the first."""
        if self.config.preflight.mode != "off":
            seen: list[VllmSample] = []
            vllm = self._vllm_before_training(trainer)
            sample_on_main(lambda: self.inputs.run_preflight(seen), self.inputs.model, vllm, seen)

    def new_folder(self) -> RunFolder:
        """The run's folder, made by the main process."""
        config, records = self.config, self.config.records
        name = f"{config.method}-{source_name(config.data.source)}-{time.strftime('%Y%m%d-%H%M%S')}"
        make = partial(RunFolder.create, records.output_dir, records.name or name, numbered=not records.name)
        folder = RunFolder(on_main(lambda: make().path))
        if not folder.path.is_dir():
            raise RecordError(
                f"{folder.path}: the main process made this run folder, but another process does not see it. Ranks on "
                "several machines need records.output_dir on a file system that they share."
            )
        self.say(f"Run folder: {folder.path}")
        return folder

    def record_start(self, folder: RunFolder, command: Sequence[str]) -> None:
        """Write `run.json` and `config.yaml`."""
        check_free(folder.path)  # another process may have been faster
        config, data_hash = self.config.model_dump(mode="json"), self.inputs.problems.data_hash
        folder.write_run(seed=self.config.seed, command=command, config=config, data_hash=data_hash)

    def resume_point(self, folder: RunFolder, *, allow_config_change: bool) -> FoundCheckpoint:
        """The checkpoint to resume from. Notes about it are printed, and accepted changes are recorded."""
        config, data_hash = self.config.model_dump(mode="json"), self.inputs.problems.data_hash
        num_ranks = PartialState().num_processes
        find = partial(resume_point, data_hash=data_hash, num_ranks=num_ranks, allow_config_change=allow_config_change)
        found, changes = on_main(lambda: find(folder, self.config))
        for note in found.notes:
            self.say(f"[yellow]{escape(note)}[/]")
        if reason := METHODS[self.config.method].cannot_resume:
            self.say(f"[yellow]A run of {self.config.method} begins again: {escape(reason)}[/]")
        if changes:  # before anything is written under the new settings
            on_main(lambda: folder.record_override(changes, step=found.step, config=config, data_hash=data_hash))
        return found

    def finish(self, folder: RunFolder, trainer: Any, found: FoundCheckpoint | None = None) -> RunFolder:
        """Evaluate, train from the checkpoint that was found, save, evaluate again, and summarize."""
        status = status_of(folder, self.say) if is_main() else contextlib.nullcontext()
        with status, lost_rank_named(), self.inputs.verifier:
            # 1. Evaluate before training.
            if self.config.evaluate.eval_on_start:
                vllm = self._vllm_before_training(trainer)
                sample_on_main(lambda: self.inputs.evaluate(folder, "before", step=0), self.inputs.model, vllm)
            # 2. Train, phase by phase.
            self.callback = self._make_callback(folder, found)
            trainer = self._train(folder, trainer, found and found.path)
            # 3. Save. If the model is in shards, the saved one is measured, or vLLM gets the weights.
            vllm = colocated_vllm(trainer)
            if not is_adapted(self.inputs.model):
                self._save_model(folder, trainer)
                if shards_by(self.arguments) and vllm is None:
                    self._load_saved_model(folder)
            # 4. Evaluate after training, and summarize.
            step = self.callback.steps_before
            summary, worthless = sample_on_main(lambda: self._finish(folder, step=step), self.inputs.model, vllm)
        if is_main():
            self._say_end(folder, summary, worthless)  # the run is finished, whatever printing does
        return folder

    def _vllm_before_training(self, trainer: Any) -> Any:
        """The trainer's vLLM. None under FSDP: it takes weights from the wrapped model, which training makes."""
        return None if shards_by(self.arguments) == "FSDP" else colocated_vllm(trainer)

    def _train(self, folder: RunFolder, trainer: Any, checkpoint: Path | None) -> Any:
        """Train the first phase with this trainer, then the later phases. Return the last trainer."""
        callback, last = self.callback, trainer
        while trainer is not None:
            callback.trainer = last = trainer
            in_folder(trainer.args, self.config, folder.path)
            trainer.add_callback(callback)
            with checkpoint_errors(checkpoint, lambda: callback.loaded), lost_rank_named():
                trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
            callback.steps_before += trainer.state.global_step
            checkpoint, trainer = None, next(self.trainers, None)
        return last

    def _trainers(self) -> Iterator[Any]:
        """Yield the trainer of each phase of the method, made when the phase before has ended."""
        method, inputs = METHODS[self.config.method], self.inputs
        if not method.cannot_resume:
            for reason in inexact_resumes(self.arguments):
                self.say(f"[yellow]{reason}[/]")
        parts = RunParts(
            model=inputs.model,
            tokenizer=inputs.tokenizer,
            problems=inputs.problems,
            reader=inputs.reader,
            verifier=inputs.verifier,
            settings=self.config,
            shaping=self._shaping,
            adapter=inputs.adapter,
            arguments=self.arguments,
            on_rollouts=lambda step, rows: self.callback.receive(step, rows),
        )
        made: Any = GARTrainer.from_parts(parts) if method.trainer is None else method.trainer(parts)
        trainer = None
        for trainer in [made] if hasattr(made, "train") else made:
            self._take_over(trainer)
            yield trainer
        if trainer is None:
            raise ConfigError(f"the trainer of method '{self.config.method}' returned no phase. Expected at least one.")

    def _take_over(self, trainer: Any) -> None:
        """Take the model of a trainer that has just been made. It may have an adapter now."""
        check_saves_whole_model(trainer.accelerator)
        for printing in (PrinterCallback, ProgressCallback):  # `RunCallback` prints progress
            trainer.remove_callback(printing)
        self.inputs.model = trainer.accelerator.unwrap_model(trainer.model)
        if is_adapted(self.inputs.model):
            trained, total = self.inputs.model.get_nb_trainable_parameters()
            self.say(f"Adapter: {trained:,} of {total:,} parameters are trained ({trained / total:.1%}).")

    def _make_callback(self, folder: RunFolder, found: FoundCheckpoint | None) -> RunCallback:
        def evaluate(trainer: Any) -> dict[str, float]:
            return sample_on_main(self.inputs.evaluation_metrics, self.inputs.model, colocated_vllm(trainer))

        def drop_later_records() -> None:
            folder.update_run(status="running")  # first: if the disk has no room for it, nothing is cut
            folder.cut(found.step if found else 0)

        saves = self.arguments.save_strategy != "no" and not self.arguments.save_only_model
        can_resume = saves and not METHODS[self.config.method].cannot_resume
        return RunCallback(
            folder,
            evaluate=evaluate,
            evaluate_every=self.config.evaluate.eval_steps if self.inputs.evaluation_sets else 0,
            keep_checkpoints=self._keep_checkpoints,
            on_loaded=drop_later_records if found else None,
            interrupts=self._interrupts if can_resume else Interrupts(),
            watchdog=Watchdog(self.config.watchdog, lambda text: self.say(f"[bold yellow]WATCHDOG: {escape(text)}[/]")),
        )

    def _save_model(self, folder: RunFolder, trainer: Any) -> None:
        """Write the final model on all ranks. Whenever the run is killed, its folder is complete or absent."""
        with contextlib.ExitStack() as stack:
            staged = on_main(lambda: stack.enter_context(folder.new_folder("model")))
            trainer.save_model(str(staged))
            PartialState().wait_for_everyone()

    def _load_saved_model(self, folder: RunFolder) -> None:
        """Take the saved model for the evaluation after training: the one in memory is in shards."""
        PartialState().wait_for_everyone()  # the main process gives the folder its name
        settings = self.config.model.model_copy(update={"path": str(folder.path / "model"), "revision": None})
        self.inputs.model, _ = load_policy(settings)

    def _finish(self, folder: RunFolder, *, step: int) -> tuple[dict[str, Any], str]:
        """Adapter and merged model, if there is an adapter, evaluation, and summary. Then why nothing was learned."""
        from gar.analysis import learning_curve_figure, save_figure
        from gar.analysis.card import model_card
        from gar.analysis.summary import nothing_learned, summarize

        model, tokenizer = self.inputs.model, self.inputs.tokenizer
        if is_adapted(model):
            with folder.new_folder("adapter") as staged:
                save_adapter(model, tokenizer, staged)
        self.inputs.evaluate(folder, "after", step=step)
        if is_adapted(model):
            with folder.new_folder("model") as staged:
                save_merged(model, tokenizer, staged)
        run = open_run(folder.path)
        summary = summarize(run)
        save_figure(learning_curve_figure(run), folder.path / _CURVE)
        write_atomic(folder.path / "model" / "README.md", model_card(self.config, run, summary))
        folder.update_run(status="finished", summary=summary)
        return summary, nothing_learned(run)

    def _say_end(self, folder: RunFolder, summary: dict[str, Any], worthless: str) -> None:
        from gar.analysis.summary import render_summary

        self.say(render_summary(summary))
        if worthless:
            self.say(f"[bold yellow]{escape(worthless)}[/]")
        self.say(f"Run folder      {folder.path}")
        self.say(f"Final model     {folder.path / 'model'}")
        if is_adapted(self.inputs.model):
            self.say(f"Adapter         {folder.path / 'adapter'}")
        self.say(f"Learning curve  {folder.path / _CURVE}.png")
        self.say(f"One page        gar report {folder.path}")


def _unread(config: RunConfig) -> list[str]:
    """Settings that are set but unused, as "section.name"."""
    method, sections = METHODS[config.method], dict(config)
    fields = [] if method.reads is None else unread_fields(config.trl, method.reads(sections))
    return unread_settings(method, sections) + fields


@contextlib.contextmanager
def _writer_lock(folder: RunFolder) -> Iterator[None]:
    """Take the lock of a run folder in the main process for all ranks. If that fails, all ranks end."""
    with contextlib.ExitStack() as stack:
        on_main(lambda: stack.enter_context(writer_lock(folder.path)))
        yield
