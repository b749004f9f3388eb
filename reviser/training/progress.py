"""What a run measures on its way: counted and recorded by `Progress`, shown by a `Display`.

`train(progress=...)` takes the name of a display, `rich` (a bar on a terminal, lines elsewhere) or `lines`, or a
function that is called with an `Update` for every measurement:

>>> display = make_display(lambda update: print(update.step, update.values["loss_nats"]))
>>> display.show(Update(3, 10, {"loss_nats": 2.5}))
3 2.5
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import torch
from rich import progress as bars
from rich.console import Console

from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model.transformer import num_multiplied
from reviser.training.feed import Work
from reviser.training.runs import Run
from reviser.training.settings import RunConfig

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
"""Dense bf16 operations a second by the vendors' datasheets."""
NO_TENSORBOARD = "no TensorBoard events: tensorboard is not installed (pip install 'reviser[train]')"


@dataclass(frozen=True, slots=True)
class Update:
    """A measurement: the step it was made at, of how many, and its numbers by name, as metrics.jsonl has them."""

    step: int
    steps: int
    values: Mapping[str, float]


Callback = Callable[[Update], None]
ProgressKind = Literal["rich", "lines"] | Callback


@dataclass(frozen=True, slots=True)
class Speed:
    """What one step did: positions with actions, all positions, labels, and seconds waited for data."""

    actions: int
    positions: int
    labels: int
    span_sum: float
    """The sum over positions of their example's length, for the cost of attention."""
    waited_s: float

    @classmethod
    def of(cls, work: Work, world: int) -> Speed:
        rows = [batch.rows for batch in work.batches]
        actions = sum(int(each.num_actions.sum()) for each in rows)
        # Twice the mean position is the mean length of the example a position lies in.
        spans = sum(2.0 * float(each.positions.sum()) for each in rows)
        positions = sum(each.actions.size for each in rows)
        labels = sum(each.num_labels for each in work.inputs)
        return cls(actions * world, positions * world, labels * world, spans * world, work.waited_s)


def step_flops(config: ModelConfig, speed: Speed) -> float:
    """Training operations of a step: 6 per weight and position, the head only where there are labels."""
    head = config.alphabet.size * config.width
    trunk = 6.0 * (num_multiplied(config) - head) * speed.positions + 6.0 * head * speed.labels
    return trunk + 12.0 * config.num_layers * config.width * speed.span_sum


def peak_flops() -> float | None:
    """The GPU's peak in bf16, where it is known."""
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((peak for key, peak in PEAK_FLOPS.items() if key in name), None)


class Display:
    """Shows nothing."""

    def start(self, step: int, steps: int) -> None:
        """Training begins at a step."""

    def say(self, line: str) -> None:
        """A line of text."""

    def advance(self) -> None:
        """A step is made."""

    def show(self, update: Update) -> None:
        """Something was measured."""

    def stop(self) -> None:
        """Training ends."""


class CallbackDisplay(Display):
    """Calls a function for every measurement."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def show(self, update: Update) -> None:
        self.callback(update)


class LinesDisplay(Display):
    """Writes a line to stderr for every measurement."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    def start(self, step: int, steps: int) -> None:
        self._first, self._began = step, time.perf_counter()

    def say(self, line: str) -> None:
        # Without markup: rich would take [train] for a style and drop it.
        self.console.print(line, markup=False, soft_wrap=True)

    def show(self, update: Update) -> None:
        self.say("  ".join(line_parts(update, self._minutes_left(update))))

    def _minutes_left(self, update: Update) -> float:
        per_step = (time.perf_counter() - self._began) / max(update.step - self._first, 1)
        return (update.steps - update.step) * per_step / 60


class BarDisplay(LinesDisplay):
    """A bar on the terminal that shows the last loss, and a line for every held-out bound."""

    def start(self, step: int, steps: int) -> None:
        super().start(step, steps)
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(), console=self.console, transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task("training", total=steps, completed=step)

    def advance(self) -> None:
        self._bar.advance(self._task)

    def show(self, update: Update) -> None:
        if "loss_nats" in update.values:
            # The bar has step and time of its own.
            self._bar.update(self._task, description="  ".join(line_parts(update, 0.0)[1:-1]))
        else:
            super().show(update)

    def stop(self) -> None:
        self._bar.stop()


def make_display(progress: ProgressKind | None) -> Display:
    """The display of a name or function; None shows nothing."""
    if progress is None:
        return Display()
    if progress == "rich":
        return BarDisplay() if sys.stderr.isatty() else LinesDisplay()
    if progress == "lines":
        return LinesDisplay()
    if callable(progress):
        return CallbackDisplay(progress)
    raise ConfigError(f"progress={progress!r}; give 'rich', 'lines', a function, or None to show nothing")


class Progress:
    """Counts what happens between two measurements, and hands them to the run folder and the display."""

    def __init__(
        self,
        settings: RunConfig,
        step: int = 0,
        run: Run | None = None,
        display: Display | None = None,
        world: int = 1,
    ) -> None:
        self.settings, self.run, self.display = settings, run, display or Display()
        self.first, self.peak = step, (peak_flops() or 0.0) * world
        self._writer: Any = None
        self._reset()
        self.began = time.perf_counter()

    def _reset(self) -> None:
        self._since, self._actions, self._flops, self._waited = time.perf_counter(), 0, 0.0, 0.0
        self._positions = 0

    def __enter__(self) -> Progress:
        if self.run is not None:
            self._writer = _tensorboard(self.run, self.first)
            if self._writer is None:
                self.display.say(NO_TENSORBOARD)
        self.display.start(self.first, self.settings.train.steps)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.display.stop()
        if self._writer is not None:
            self._writer.close()

    def advance(self, speed: Speed) -> None:
        self._actions += speed.actions
        self._positions += speed.positions
        self._flops += step_flops(self.settings.model, speed)
        self._waited += speed.waited_s
        self.display.advance()

    def note(self, line: str) -> None:
        """Something worth knowing about the run, for its log and whoever watches."""
        if self.run is not None:
            self.run.log(line)
        self.display.say(line)

    def show_text(self, step: int, name: str, text: str) -> None:
        """A text for TensorBoard."""
        if self.run is not None and self._writer is not None:
            with self.run.writing(self.run.folder / "tensorboard"):
                self._writer.add_text(name, text, step)

    def report(self, step: int, **measured: float | None) -> None:
        """Measurements of a step, None where there is none; those of the loop come with the speed since the last."""
        values = {name: value for name, value in measured.items() if value is not None}
        if "loss_nats" in values:
            values |= self._speed()
        update = Update(step, self.settings.train.steps, values)
        if self.run is not None:
            elapsed = time.perf_counter() - self.began
            self.run.record(step=step, elapsed_s=round(elapsed, 2), **measured | values)
            left = (update.steps - step) * elapsed / max(step - self.first, 1) / 60
            self.run.log("  ".join(line_parts(update, left)))
            if self._writer is not None:
                with self.run.writing(self.run.folder / "tensorboard"):
                    for name, value in values.items():
                        self._writer.add_scalar(name, value, step)
        self.display.show(update)

    def _speed(self) -> dict[str, float]:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent = max(time.perf_counter() - self._since, 1e-9)
        values = {
            "actions_per_s": self._actions / spent,
            "waiting_share": self._waited / spent,
            "fill": self._actions / max(self._positions, 1),
        }
        if self.peak:
            values["peak_share"] = self._flops / spent / self.peak
        self._reset()
        return values


def line_parts(update: Update, minutes_left: float) -> list[str]:
    """A measurement as a person reads it."""
    values, parts = update.values, [f"step {update.step:>6}/{update.steps}"]
    if "loss_nats" in values:
        parts += [f"loss {values['loss_nats']:.4f} nats", f"{values['actions_per_s']:,.0f} actions/s"]
        shown = {"judge_score": "judge", "kl": "KL", "sound_share": "sound", "share_move": "moves"}
        parts += [f"{said} {values[name]:.4g}" for name, said in shown.items() if name in values]
        if "peak_share" in values:
            parts.append(f"{values['peak_share']:.1%} of peak")
        parts.append(f"waiting {values['waiting_share']:.0%}")
        parts.append(f"{minutes_left:.1f} min left")
    return parts + [
        f"held-out {before.replace('_', ' ')}bound {values[before + 'bound_perplexity']:.2f} ppl/token "
        f"({values[before + 'bound_nats_per_token']:.4f} ± {_format(values.get(before + 'bound_error'))} nats), "
        f"{values[before + 'bits_per_byte']:.4f} bits/byte"
        for before in ("", "infill_", "edit_")
        if before + "bound_perplexity" in values
    ]


def _format(error: float | None) -> str:
    return "-" if error is None else f"{error:.4f}"


def _tensorboard(run: Run, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    # What was measured behind the checkpoint is measured again.
    return SummaryWriter(str(run.folder / "tensorboard"), purge_step=step + 1 if step else None)
