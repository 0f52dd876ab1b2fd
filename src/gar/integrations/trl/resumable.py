"""TRL's trainer with exact resumes."""

from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from trl import GRPOTrainer

from gar.errors import ConfigError
from gar.integrations.trl.arguments import generation_passes
from gar.integrations.trl.ranks import lost_rank_named
from gar.records.files import library_errors


class ResumableTrainer(GRPOTrainer):
    """`GRPOTrainer` with resumes that equal an uninterrupted run."""

    _train_sampler: Any = None  # a stream has none
    _epoch = 0

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
            "passes": self._step,
            "rollouts": None if used_up else self._buffered_inputs,
            "metrics": {name: [float(value) for value in values] for name, values in self._metrics["train"].items()},
            "loss": self._tr_loss,
            "logged_step": self._globalstep_last_logged,
            "epoch": self._epoch,
        }
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        with library_errors():
            torch.save(under_way, folder / self._under_way_name())

    def _restore_under_way(self, checkpoint: str) -> None:
        path = Path(checkpoint, self._under_way_name())
        if path.exists():  # not in a checkpoint of another trainer
            under_way = torch.load(path, map_location="cpu", weights_only=True)  # a rank's own device can be "cpu:0"
            under_way = cast("dict[str, Any]", send_to_device(under_way, self.accelerator.device))
            if self._train_sampler is None and under_way["epoch"]:
                raise ConfigError(
                    f"{checkpoint}: the stream had ended and begun again, and its second pass cannot be found again: "
                    "the run would go on with other problems than without its stop. Give a datasets.Dataset, or a "
                    "stream that lasts for max_steps.",
                    code="stream-resume",
                )
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
        """Skip a step after the last, restore what was under way, and draw the orders of earlier epochs again."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        epochs_trained, checkpoint = kwargs["epochs_trained"], kwargs["resume_from_checkpoint"]
        if kwargs["epoch"] == epochs_trained and checkpoint is not None:
            self._restore_under_way(checkpoint)
        self._epoch, sampler = kwargs["epoch"], self._train_sampler
        if kwargs["epoch"] == epochs_trained and sampler is not None and sampler.shuffle:
            for _ in range(epochs_trained):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        super()._run_epoch(*args, **kwargs)
