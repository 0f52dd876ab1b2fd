"""TRL's trainer with exact resumes."""

from typing import Any

import torch
from trl import GRPOTrainer


class ResumableTrainer(GRPOTrainer):
    """`GRPOTrainer` with resumes that equal an uninterrupted run."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._train_sampler: Any = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """A checkpoint holds the matrix of a tied head once, which the Trainer reports as a missing key."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Skip a step after the last, and draw the orders of earlier epochs from the sampler's generator."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        epochs_trained = kwargs["epochs_trained"]
        if kwargs["epoch"] == epochs_trained and self._train_sampler.shuffle:
            for _ in range(epochs_trained):
                torch.randperm(self._train_sampler.num_samples, generator=self._train_sampler.generator)
        super()._run_epoch(*args, **kwargs)
