"""TRL's trainer with exact resumes."""

from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from trl import GRPOTrainer

from gar.integrations.trl.arguments import generation_passes
from gar.integrations.trl.ranks import lost_rank_named
from gar.records.files import library_errors


class ResumableTrainer(GRPOTrainer):
    """`GRPOTrainer` with resumes that equal an uninterrupted run."""

    _train_sampler: Any = None  # a stream has none
    _epoch = _steps_before = 0  # the epoch under way, and the steps of those before it

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Also save what the next steps of an uninterrupted run would use.

        These are the values that the next line of metrics averages, and rollouts with updates still to be made.
        """
        with library_errors(), lost_rank_named():
            super()._save_checkpoint(model, trial)
        if self.args.save_only_model:
            return
        used_up = self._step % generation_passes(self.args) == 0
        under_way = {
            "epoch": (self._epoch, self._steps_before),
            "passes": self._step,
            "rollouts": None if used_up else self._buffered_inputs,
            "metrics": {name: [float(value) for value in values] for name, values in self._metrics["train"].items()},
            "loss": self._tr_loss,
            "logged_step": self._globalstep_last_logged,
        }
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        with library_errors():
            torch.save(under_way, folder / self._under_way_name())

    def _restore_under_way(self, checkpoint: str) -> None:
        path = Path(checkpoint, self._under_way_name())
        if path.exists():  # not in a checkpoint of another trainer
            under_way = torch.load(path, map_location="cpu", weights_only=True)  # a rank's own device can be "cpu:0"
            under_way = cast("dict[str, Any]", send_to_device(under_way, self.accelerator.device))
            self._epoch, self._steps_before = under_way["epoch"]
            self._step, self._buffered_inputs = under_way["passes"], under_way["rollouts"]
            self._metrics["train"].update(under_way["metrics"])
            self._tr_loss, self._globalstep_last_logged = under_way["loss"], under_way["logged_step"]

    def _under_way_name(self) -> str:
        return f"under_way_{self.accelerator.process_index}.pt"

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._train_sampler = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """A checkpoint holds the matrix of a tied head once, which the Trainer reports as a missing key."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Skip a step after the last, restore what was under way, and go on in the epoch and order of that."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        epoch, epochs_trained = kwargs["epoch"], kwargs["epochs_trained"]
        resumes, skips = kwargs["resume_from_checkpoint"] is not None, kwargs["steps_trained_in_current_epoch"] > 0
        sampler = self._train_sampler
        if resumes and epoch == epochs_trained:
            self._restore_under_way(kwargs["resume_from_checkpoint"])
        if epoch == epochs_trained and sampler is not None and sampler.shuffle:
            for _ in range(epochs_trained):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        # The Trainer takes all steps of a stream for one epoch, since it does not know its length.
        if resumes and skips and sampler is None:
            if epoch < self._epoch:
                return
            if epoch == self._epoch:
                batches = (self.state.global_step - self._steps_before) * self.args.gradient_accumulation_steps
                kwargs |= {"epochs_trained": epoch, "steps_trained_in_current_epoch": batches}
        if not (resumes and epoch == self._epoch):
            self._epoch, self._steps_before = epoch, self.state.global_step
        super()._run_epoch(*args, **kwargs)
