"""What a person sees of a run: a bar on a terminal, lines elsewhere, metrics.jsonl and TensorBoard beside it."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from rich import progress as bars
from rich.console import Console

from reviser.config import ModelConfig
from reviser.model.size import num_multiplied
from reviser.training.feed import Work
from reviser.training.runs import Run
from reviser.training.settings import RunConfig

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
"""Dense bf16 operations a second by the vendors' datasheets."""


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


class Progress:
    """Counts what happens between two reports and shows it."""

    def __init__(self, settings: RunConfig, step: int, is_shown: bool, run: Run | None, world: int = 1) -> None:
        self.settings, self.run, self.is_shown = settings, run, is_shown
        self.first, self.step, self.peak = step, step, (peak_flops() or 0.0) * world
        self.console = Console(stderr=True, highlight=False)
        self.is_live = is_shown and sys.stderr.isatty()
        self._writer: Any = None
        self._reset()
        self.began = time.perf_counter()

    def _reset(self) -> None:
        self._since, self._actions, self._flops, self._waited = time.perf_counter(), 0, 0.0, 0.0
        self._positions = 0

    def __enter__(self) -> Progress:
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(), console=self.console, disable=not self.is_live, transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task("training", total=self.settings.train.steps, completed=self.first)
        if self.is_shown and self.run is not None:
            self._writer = _tensorboard(self.run, self.first, self.console)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._writer is not None:
            self._writer.close()

    def advance(self, speed: Speed) -> None:
        self.step += 1
        self._actions += speed.actions
        self._positions += speed.positions
        self._flops += step_flops(self.settings.model, speed)
        self._waited += speed.waited_s
        self._bar.advance(self._task)

    def note(self, line: str) -> None:
        """Something worth knowing about the run, for its log and whoever watches."""
        if self.is_shown and self.run is not None:
            self.run.log(line)
        if self.is_shown:
            self.console.print(line, soft_wrap=True)

    def report(self, step: int, **measured: float | None) -> None:
        """Measurements of a step, None where there is none; those of the loop come with the speed since the last."""
        values = {name: value for name, value in measured.items() if value is not None}
        if "loss_nats" in values:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            spent = max(time.perf_counter() - self._since, 1e-9)
            values["actions_per_s"] = self._actions / spent
            values["waiting_share"] = self._waited / spent
            values["fill"] = self._actions / max(self._positions, 1)
            if self.peak:
                values["peak_share"] = self._flops / spent / self.peak
            self._reset()
        if not self.is_shown:
            return
        if self.run is not None:
            self.run.record(step=step, elapsed_s=round(time.perf_counter() - self.began, 2), **measured | values)
            self.run.log(self._line(step, values))
        if self.run is not None and self._writer is not None:
            with self.run.writing(self.run.folder / "tensorboard"):
                for name, value in values.items():
                    self._writer.add_scalar(name, value, step)
        self._show(step, values)

    def _show(self, step: int, values: dict[str, float]) -> None:
        if self.is_live and "loss_nats" in values:
            # The bar has step and time of its own.
            self._bar.update(self._task, description="  ".join(self._parts(step, values)[1:-1]))
        else:
            self.console.print(self._line(step, values), soft_wrap=True)

    def _line(self, step: int, values: dict[str, float]) -> str:
        return "  ".join(self._parts(step, values))

    def _parts(self, step: int, values: dict[str, float]) -> list[str]:
        parts = [f"step {step:>6}/{self.settings.train.steps}"]
        if "loss_nats" in values:
            parts += [f"loss {values['loss_nats']:.4f} nats", f"{values['actions_per_s']:,.0f} actions/s"]
            if "peak_share" in values:
                parts.append(f"{values['peak_share']:.1%} of peak")
            parts.append(f"waiting {values['waiting_share']:.0%}")
            left = (self.settings.train.steps - step) * (time.perf_counter() - self.began) / max(step - self.first, 1)
            parts.append(f"{left / 60:.1f} min left")
        return parts + [
            f"held-out {before.replace('_', ' ')}bound {values[before + 'bound_perplexity']:.2f} ppl/token "
            f"({values[before + 'bound_nats_per_token']:.4f} ± {_format(values.get(before + 'bound_error'))} nats), "
            f"{values[before + 'bits_per_byte']:.4f} bits/byte"
            for before in ("", "infill_")
            if before + "bound_perplexity" in values
        ]


def _format(error: float | None) -> str:
    return "-" if error is None else f"{error:.4f}"


def _tensorboard(run: Run, step: int, console: Console) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        console.print("no TensorBoard events: tensorboard is not installed (pip install 'reviser[train]')")
        return None
    # What was measured behind the checkpoint is measured again.
    return SummaryWriter(str(run.folder / "tensorboard"), purge_step=step + 1 if step else None)
