"""Whether an optimizer step moves the weights: in 16 bits a small update rounds to nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from gar.extras import install_command
from gar.integrations.watchdog import warn
from gar.metrics import CHANGED_WEIGHTS
from gar.step import StepRanks

_SAMPLE = 4096
"""Weights that a rank looks at."""

_ENOUGH = 0.5
"""At a rate of 1e-6 a step changes over 0.99 of float32 weights, and less than 0.01 of bfloat16 weights."""


class WeightChange(TrainerCallback):
    """Logs the share of weights that an optimizer step changes, and warns if weights in 16 bits do not move.

    It counts a fixed sample of the weights that a rank holds, whole or in shards, as far as they have a gradient, and
    sums the counts of all ranks. Steps that the optimizer skips, or makes at the learning rate 0, do not count. The
    first that counts decides about the warning. Not for DeepSpeed, which moves float32 copies in the backward pass.

    Args:
        metrics: The trainer's lists of values, by name.
        ranks: Sums counts over ranks.
        tell: Receives the warning.
    """

    def __init__(self, metrics: dict[str, list[float]], ranks: StepRanks, tell: Callable[[str], None] = warn):
        self._metrics, self._ranks, self._tell = metrics, ranks, tell
        self._sample: list[tuple[Tensor, Tensor]] | None = None
        self._before: list[tuple[Tensor, Tensor]] = []  # values, and whether they have a gradient
        self._rate = 0.0
        self._decided = False

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the sampled weights, and which of them have a gradient."""
        groups = kwargs["optimizer"].param_groups
        self._rate = max(float(group["lr"]) for group in groups)
        if self._sample is None:
            self._sample = _sample([parameter for group in groups for parameter in group["params"]])
        for parameter, positions in self._sample:
            values = torch.take(_local(parameter), positions)
            gradient = values.new_zeros(len(values))
            if parameter.grad is not None:
                gradient = torch.take(_local(parameter.grad), positions)
            self._before.append((values, gradient != 0))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count what has changed. All ranks sum, whatever they hold."""
        optimizer, counts = kwargs["optimizer"], torch.zeros(2, dtype=torch.int64)
        for (parameter, positions), (values, pulled) in zip(self._sample or (), self._before, strict=True):
            changed = torch.take(_local(parameter), positions) != values
            counts += torch.stack([(changed & pulled).sum(), pulled.sum()]).cpu()
        self._before.clear()
        num_changed, num_pulled = self._ranks.sum(counts).tolist()
        if num_pulled == 0 or self._rate == 0 or getattr(optimizer, "step_was_skipped", False):
            return
        share = num_changed / num_pulled
        self._metrics[CHANGED_WEIGHTS].append(share)
        if not self._decided and share < _ENOUGH and not _rounds_at_random(optimizer):
            self._warn(state.global_step + 1, share, optimizer)
        self._decided = True

    def _warn(self, step: int, share: float, optimizer: Any) -> None:
        dtypes = {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]}
        if short := sorted(str(dtype).removeprefix("torch.") for dtype in dtypes if dtype.itemsize < 4):
            self._tell(
                f"Optimizer step {step} changed {share:.2%} of the weights that have a gradient, at the learning rate "
                f"{self._rate:g}. They are {' and '.join(short)}, in which so small an update rounds to nothing. Load "
                "the model in float32, and let bf16=True compute in bfloat16. Or round at random: "
                f"{install_command('lowbit')}, optim='adamw_torch_8bit', optim_args='bf16_stochastic_round=True'."
            )


def _rounds_at_random(optimizer: Any) -> bool:
    """Whether few weights move in a step, but by the right mean over steps, as torchao's optimizers can."""
    return bool(getattr(getattr(optimizer, "optimizer", optimizer), "bf16_stochastic_round", False))


def _local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _sample(parameters: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Parameters, and flat positions in what this rank holds of them: the same weights in every run."""
    sizes = torch.tensor([_local(parameter).numel() for parameter in parameters])
    ends = sizes.cumsum(0)
    if not sizes.sum():
        return []
    drawn = torch.randint(int(ends[-1]), (_SAMPLE,), generator=torch.Generator().manual_seed(0)).unique()
    owners = torch.searchsorted(ends, drawn, right=True)
    return [
        (parameters[i], (drawn[owners == i] - ends[i] + sizes[i]).to(parameters[i].device))
        for i in owners.unique().tolist()
    ]
