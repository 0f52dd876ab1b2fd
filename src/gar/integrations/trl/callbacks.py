"""Callbacks of a run: seconds, metrics, complete checkpoints, evaluations, and what it prints as it goes."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, cast

import torch
from accelerate import PartialState
from accelerate.utils import gather
from torch import Tensor
from tqdm import tqdm
from transformers import TrainerCallback

from gar.errors import printable
from gar.integrations.watchdog import Watchdog
from gar.interrupts import Interrupted, Interrupts
from gar.metrics import ALIGNMENT, ELIGIBLE, REWARD, seconds_of
from gar.records import RolloutRecord, RunFolder
from gar.records.checkpoints import mark_interrupt, rotate_checkpoints, seal_checkpoint

_SHOWN = {REWARD: "reward", ELIGIBLE: "correct", ALIGNMENT: "alignment"}
_SHOWN_CHARACTERS = 300
"""Characters at each end of a printed prompt or completion. The middle of a longer one is left out."""

PARTS = ("generation", "verification", "gar")


class StepTimer(TrainerCallback):
    """Adds the seconds of each optimizer step to the trainer's `metrics`: `PARTS`, and the update as the rest."""

    def __init__(self, metrics: dict[str, list[float]]):
        self._metrics = metrics
        self._seconds: dict[str, float] = {}
        self._start = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside as one of `PARTS`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._seconds.clear()
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the step's seconds."""
        total = time.perf_counter() - self._start
        parts = {name: self._seconds.get(name, 0.0) for name in PARTS}
        for name, seconds in {"step": total, **parts, "update": total - sum(parts.values())}.items():
            self._metrics[seconds_of(name)].append(seconds)


@dataclass(eq=False, repr=False)
class RunCallback(TrainerCallback):
    """Writes to a run folder, on the main process."""

    folder: RunFolder
    _: KW_ONLY
    evaluate: Callable[[Any], dict[str, float]] | None = None
    """Measures the policy of `trainer` and returns metrics. Called every `evaluate_every` steps, on all ranks."""
    evaluate_every: int = 0
    """0 for never."""
    keep_checkpoints: int | None = None
    """How many of the newest stay. None for all."""
    on_loaded: Callable[[], None] | None = None
    """Called once, after the checkpoint is restored, before the first step."""
    interrupts: Interrupts = field(default_factory=Interrupts)
    """A request to end, which the end of a step follows with a checkpoint."""
    watchdog: Watchdog | None = None
    """Looks for a collapse of the policy."""
    trainer: Any = None
    """The trainer that calls. Its other callbacks (`trl.report_to`) receive the evaluations too."""
    steps_before: int = 0
    """Optimizer steps of a trainer before the one that calls."""
    loaded: bool = False
    """Whether training has begun, or has found nothing left to do."""

    def __post_init__(self) -> None:
        self._interrupt = 0  # the signal after which this step is the last
        self._saves_regularly = False
        self._bar: tqdm | None = None
        self._start, self._first_step = 0.0, 0

    def receive(self, step: int, rows: list[RolloutRecord]) -> None:
        """Write the responses of a generation, on the main process. `step` is the trainer's."""
        if self.steps_before:
            step += self.steps_before
            rows = [replace(row, step=step) for row in rows]
        self.folder.write_rollouts(rows)
        if self.watchdog is not None:
            self.watchdog.watch_records(step, rows)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the bar at the run's step. Without a terminal there is a line for each logged step."""
        state.compute_steps(args, state.max_steps)  # a checkpoint restores the intervals that it was written with
        self._start, self._first_step = time.perf_counter(), state.global_step
        if state.is_world_process_zero and sys.stderr.isatty():
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="train", unit="step")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that training begins: the random state of a checkpoint is loaded last, before the first step."""
        self._begin(state)
        self.interrupts.waits = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate when it is time, move the bar, log the last step, and save after a request to end."""
        control.should_log |= state.global_step >= state.max_steps
        if self.evaluate is not None and self.evaluate_every and state.global_step % self.evaluate_every == 0:
            metrics = self.evaluate(self.trainer)
            self.trainer.callback_handler.call_event("on_log", args, state, control, logs=metrics)
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)
        self._interrupt = self._agreed_interrupt()
        self._saves_regularly = control.should_save
        control.should_save |= bool(self._interrupt)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """One line of metrics per logged step. The trainer's own list of them would grow for the whole run."""
        del state.log_history[:-1]
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        self.folder.append_metrics({"step": state.global_step + self.steps_before, **logs})
        shown = {label: f"{logs[name]:.3f}" for name, label in _SHOWN.items() if logs.get(name) is not None}
        if self._bar is not None:
            self._bar.set_postfix(shown)
        elif seconds_of("step") in logs:
            self._print_step(state, shown, logs[seconds_of("step")])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the checkpoint as complete, then remove older ones, so that a kill always leaves a complete one.

        Raises:
            Interrupted: On all ranks, after a request to end.
        """
        PartialState().wait_for_everyone()  # each rank writes its own state
        if state.is_world_process_zero:
            if self._interrupt and not self._saves_regularly:
                mark_interrupt(self.folder, state.global_step)
            seal_checkpoint(self.folder, state.global_step)
            rotate_checkpoints(self.folder, self.keep_checkpoints)
        self._interrupt = self._interrupt or self._agreed_interrupt()  # it may have come while this was written
        if self._interrupt:
            self.interrupts.served = True
            PartialState().wait_for_everyone()  # the launcher kills all ranks when the first has ended
            self._close()
            raise Interrupted(self._interrupt)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar. A request to end that came after the last step ends the run now."""
        self._begin(state)
        self._close()
        self.interrupts.waits = False
        if self.interrupts.number:
            raise Interrupted(self.interrupts.number)

    def _print_step(self, state: Any, shown: dict[str, str], seconds: float) -> None:
        """One line: step, values, seconds, time left."""
        done = max(state.global_step - self._first_step, 1)
        left = (time.perf_counter() - self._start) / done * (state.max_steps - state.global_step)
        values = "".join(f"  {label} {value}" for label, value in shown.items())
        text = f"step {state.global_step}/{state.max_steps}{values}  {seconds:.1f} s"
        print(f"{text}  {tqdm.format_interval(left)} left", file=sys.stderr, flush=True)

    def _agreed_interrupt(self) -> int:
        """The signal that a rank has received, 0 for none. All ranks end after the same step."""
        number, state = self.interrupts.number, PartialState()
        if not self.interrupts.caught or state.num_processes == 1:
            return number
        return int(cast(Tensor, gather(torch.tensor([number], device=state.device))).max())

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _begin(self, state: Any) -> None:
        if not self.loaded and self.on_loaded is not None and state.is_world_process_zero:
            self.on_loaded()
            rotate_checkpoints(self.folder, self.keep_checkpoints)
        self.loaded = True


@contextmanager
def completions_printed(trainer: Any, logs: Mapping[str, float]) -> Iterator[None]:
    """Print the completions of `log_completions` after the block, a few lines each.

    In the block TRL would print a column for each reward function, and print it again when training has ended.
    """
    most, trainer.num_completions_to_print = trainer.num_completions_to_print, 0
    try:
        yield
    finally:
        trainer.num_completions_to_print = most
    noted, shows = trainer._logs, trainer.log_completions and trainer.accelerator.is_main_process
    if shows and noted["prompt"] and "train_runtime" not in logs:
        _print_completions(noted, trainer.state.global_step, most)


def _print_completions(noted: Mapping[str, Any], step: int, most: int | None) -> None:
    """Print completions with their prompts and extra columns, a row each. Their numbers share one row."""
    from rich.console import Console  # only the command line needs rich
    from rich.table import Table
    from rich.text import Text

    total = len(noted["prompt"])
    chosen = range(total) if most is None or most >= total else sorted(random.sample(range(total), most))
    table = Table(title=f"Step {step}: {len(chosen)} of {total} completions", title_justify="left", show_header=False)
    numbers = {**noted["rewards"], "advantage": noted["advantages"]}
    for i in chosen:
        values = [f"{name} {values[i]:.2f}" for name, values in numbers.items() if values[i] is not None]
        texts = {name: noted[name][i] for name in ("prompt", "completion")}
        texts |= {name: values[i] for name, values in noted["extra"].items()}
        for name, text in texts.items():
            table.add_row(name, Text(_cut(_plain(text))))
        table.add_row("rewards", Text("  ".join(values)), end_section=True)
    Console().print(table)


def _plain(value: Any) -> str:
    """A text, chat messages or anything else as a text, with control characters shown: a terminal would obey them."""
    if isinstance(value, list) and all(isinstance(each, dict) and "content" in each for each in value):
        return "\n".join(f"{each.get('role', '')}: {_plain(each['content'])}" for each in value)
    return printable(value)


def _cut(text: str) -> str:
    """The beginning and the end of a long text."""
    left_out = len(text) - 2 * _SHOWN_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:_SHOWN_CHARACTERS]} [... {left_out:,} characters ...] {text[-_SHOWN_CHARACTERS:]}"
