"""The training loop: steps, measurements, checkpoints; stops and continues without a trace in the losses.

A step draws its batch from the stream's position, seeds the dropout with (seed, step, process), adds up the
gradients of its parts weighted by their labels, clips, and steps. What a checkpoint holds (weights, optimizer,
step, position) is therefore all there is: continuing gives the same losses bit for bit on a CPU.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from reviser.data.batches import Batch, Batches, Position
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import CheckpointError, ConfigError, DivergenceError
from reviser.model.checkpoint import load_weights, weights
from reviser.model.folder import FolderConfig
from reviser.model.transformer import Transformer
from reviser.orders.rng import Random
from reviser.training.distributed import (
    Team,
    full_tensor,
    gather_optimizers,
    gather_weights,
    set_optimizers,
    set_weights,
    spread,
    syncing,
)
from reviser.training.families import Family, Job, find_family
from reviser.training.feed import Feed, Work, Works
from reviser.training.heldout import Bound, Texts
from reviser.training.objective import Part
from reviser.training.optimizer import build_optimizers, lr_factor, set_lr
from reviser.training.progress import Display, Progress, Speed
from reviser.training.provenance import describe
from reviser.training.runs import Run, Saved
from reviser.training.settings import RunConfig

POINTER = "pointer."
"""What the names of a pointer's weights begin with."""
MORE = "more."
"""What the names of tensors begin with that are neither the model's nor its optimizers'."""


class Trainer:
    """Everything one process needs to train one run; `family` is found by its name in the settings unless given."""

    def __init__(
        self,
        settings: RunConfig,
        slots: Slots,
        team: Team,
        run: Run | None = None,
        heldout: Shards | None = None,
        family: Family | None = None,
    ) -> None:
        train = settings.train
        if train.rows // train.accumulate % team.world:
            raise ConfigError(
                f"train.rows={train.rows} in accumulate={train.accumulate} parts do not divide over {team.world} "
                "processes; choose a multiple"
            )
        self.settings, self.slots, self.run, self.team = settings, slots, run, team
        self.family = family or find_family(settings.family)
        self.step, self.stop_signal = 0, 0
        self.bounds: dict[str, Bound] = {}
        self._last: tuple[Tensor, float, Tensor] | None = None
        self._full_model: Transformer | None = None
        self._is_updating = False
        torch.manual_seed(settings.train.seed)
        model = self.family.make_model(settings).to(team.device)
        is_cuda = team.device.type == "cuda"
        self.precision = settings.train.precision
        if self.precision == "auto":
            self.precision = "bf16" if is_cuda else "float32"
        self.objective = self.family.make_objective(model, settings, settings.train.compile and is_cuda)
        self.module = spread(self.objective, team, settings.train.parallel)
        self.model = model
        self.optimizers = build_optimizers(model, settings.optimizer)
        if settings.train.compile and is_cuda:
            self._compile()
        self.tokenizer = heldout.tokenizer if heldout else None
        self.packer = self.family.make_packer(settings, self.tokenizer)
        self.data = heldout.header.sha256 if heldout else ""
        self.heldout = self._hold_out(heldout) if heldout else {}
        self.position = Position()

    def prepare(self, batch: Batch) -> Part:
        """A batch as tensors on the host."""
        return self.family.prepare(batch, self.settings, self.team)

    def _hold_out(self, shards: Shards) -> dict[str, Texts]:
        """What is measured of each job."""
        train = self.settings.train
        counts: dict[Job, int] = {
            "continue": train.eval_examples, "infill": train.eval_infill, "edit": train.eval_edit,
        }  # fmt: skip
        found = {
            job: self.family.make_heldout(self.settings, shards, count, job) for job, count in counts.items() if count
        }
        return {job: texts for job, texts in found.items() if texts is not None}

    def _compile(self) -> None:
        if self.team.world > 1 and self.settings.train.parallel == "fsdp":
            for block in self.model.blocks:
                block.compile()
        else:
            self.objective.trunk = torch.compile(self.model.hidden, dynamic=False)

    def train(
        self, steps: int | None = None, display: Display | None = None, handle_signals: bool = False
    ) -> dict[str, Bound]:
        """Train to the end, or for some steps; returns the last held-out bound of each job.

        With `handle_signals`, SIGINT and SIGTERM end the training after the step it is in, with a checkpoint.
        Without, Ctrl-C is a KeyboardInterrupt, which says what was saved and how to resume.
        """
        try:
            with self._listening(handle_signals):
                return self._train(steps, display)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._save_interrupted()) from None
        except OSError as error:
            if self.run is None:
                raise
            file = f"{error.filename}: " if error.filename else ""
            raise self.run.explain(f"training stopped at step {self.step}: {file}{error.strerror or error}") from None

    def _train(self, steps: int | None, display: Display | None) -> dict[str, Bound]:
        train, last = self.settings.train, min(self.settings.train.steps, self.step + (steps or 1 << 60))
        bounds: dict[str, Bound] = {}
        with Progress(self.settings, self.step, self.run, display, self.team.world) as progress:
            feed = self.feed(progress.note)
            try:
                for work in feed if self.step < last else ():
                    self.advance(work, progress)
                    is_last = self.step == last
                    if self.step % train.eval_every == 0 or is_last:
                        bounds = self._measure(progress)
                    if self.step % train.sample_every == 0 or is_last:
                        self._sample()
                    # All processes must agree, which costs them a moment.
                    is_asking = self.team.world == 1 or self.step % 4 == 0
                    is_stopping = is_asking and self.team.any(bool(self.stop_signal))
                    if self.step % train.save_every == 0 or is_last or is_stopping:
                        self.save()
                    if is_stopping:
                        self.stop_signal = self.stop_signal or signal.SIGTERM
                    if is_stopping or is_last:
                        break
            finally:
                feed.close()
        return bounds

    def _save_interrupted(self) -> str:
        """Save after an interrupt, which may come at any moment, where the state is sound; says what is left."""
        if self.run is None:
            return f"interrupted at step {self.step}; this process saves nothing"
        # Several processes would have to agree, and an interrupt may reach one of them alone.
        is_sound = self.team.world == 1 and not self._is_updating
        if is_sound and self.step > max(self.run.steps(), default=0):
            self.save()
        if not self.run.steps():
            return f"interrupted before the first checkpoint of {self.run.folder}"
        return f"saved at step {self.run.step}; resume with reviser.train(resume={str(self.run.folder)!r})"

    def feed(self, note: Callable[[str], None] | None = None) -> Works:
        """The work of the steps to come; `note` hears what slows it down."""
        data, train, team = self.settings.data, self.settings.train, self.team
        stream = Batches(
            self.slots, self.packer, train.rows // train.accumulate, train.seed, data.workers, self.position,
            team.rank, team.world, note,
        )  # fmt: skip
        return Feed(stream, train.accumulate, self.prepare)

    def advance(self, work: Work, progress: Progress) -> None:
        """Make one step."""
        settings, team = self.settings, self.team
        self._full_model, self.bounds = None, {}
        self.module.train()
        torch.manual_seed(Random.of(settings.train.seed, self.step, team.rank).state >> 1)
        set_lr(self.optimizers, lr_factor(self.step, settings.train.steps, settings.optimizer), settings.optimizer)
        count = team.sum(sum(each.count for each in work.inputs))
        total: Tensor = torch.zeros((), device=team.device)
        for number, inputs in enumerate(work.inputs, 1):
            with syncing(self.module, is_last=number == len(work.inputs)):
                with torch.autocast(team.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                    nats = self.module(inputs.to(team.device))
                # DDP and FSDP average gradients over processes; the sum over all labels is wanted.
                (nats * (team.world / count)).backward()
            total += nats.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.optimizer.clip)
        self._is_updating = True
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step, self.position, self._last = self.step + 1, work.batches[-1].after, (total, count, norm)
        self._is_updating = False
        progress.advance(Speed.of(work, team.world))
        if self.step % settings.train.log_every == 0 or self.step in (1, settings.train.steps):
            self._log(progress)

    def _log(self, progress: Progress) -> None:
        loss, norm_value = self._check_last()
        factor = lr_factor(self.step - 1, self.settings.train.steps, self.settings.optimizer)
        progress.report(
            self.step, loss_nats=loss, gradient_norm=norm_value, lr=factor * self.settings.optimizer.lr,
            epoch=self.position.epoch(len(self.slots)),
        )  # fmt: skip

    def _check_last(self) -> tuple[float, float]:
        """Loss and gradient norm of the last step, of all processes together."""
        if self._last is None:
            return 0.0, 0.0
        total, count, norm = self._last
        loss, norm_value = self.team.sum(float(total)) / count, float(full_tensor(norm))
        self._check_finite({"loss": loss, "gradient norm": norm_value})
        return loss, norm_value

    def _check_finite(self, values: dict[str, float]) -> None:
        if all(map(math.isfinite, values.values())):
            return
        found = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise DivergenceError(
            f"step {self.step}: {found}; {self._way_back()} with a smaller --set optimizer.lr or optimizer.clip"
        )

    def _way_back(self) -> str:
        """What is saved, and how to go on from it."""
        if self.run is None:
            return "nothing is saved by this process; train again"
        remedy = "continue it" if self.run.steps() else f"remove {self.run.folder} and start the run again"
        return f"{self.run.last_good()}; {remedy}"

    def _measure(self, progress: Progress) -> dict[str, Bound]:
        """The held-out bounds; one that is no number ends the run before anything is saved."""
        self._bound_heldout()
        if self.bounds:
            pairs = [bound.metrics(job) for job, bound in self.bounds.items()]
            progress.report(self.step, **{name: value for pair in pairs for name, value in pair.items()})
        return self.bounds

    def _bound_heldout(self) -> None:
        team = self.team
        for job, heldout in self.heldout.items():
            share = heldout.score(self._gathered(), team.device, self.precision, team.rank, team.world)
            self.bounds[job] = heldout.summarise(team.sum_each(share))
            name = "held-out bound" if job == "continue" else f"held-out {job} bound"
            self._check_finite({name: self.bounds[job].nats_per_token})

    def _gathered(self) -> Transformer:
        """The model with full tensors, where its own are sharded; gathered once a step."""
        if self.team.world == 1 or self.settings.train.parallel == "ddp":
            return self.model
        if self._full_model is None:
            self._full_model = self.family.make_model(self.settings).to(self.team.device)
            self._full_model.load_state_dict(gather_weights(self.model))
        return self._full_model

    def _sample(self) -> None:
        model = self._gathered()
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            text = self.family.write_samples(model, self.tokenizer, self.settings)
            self.run.keep_samples(self.step, text)

    def save(self) -> None:
        """Write a checkpoint of a state that is sound; all processes must call this."""
        self._check_last()
        tensors = weights(self._gathered())
        optimizer = gather_optimizers(self.model, self.optimizers) | self.more_tensors()
        if self.team.is_first and self.run is not None:
            state = {
                "position": self.position.as_json(), "data_sha256": self.data, "family": self.settings.family,
                "step": self.step,
            }  # fmt: skip
            folder_config = FolderConfig(
                self.settings.model,
                self.tokenizer.sha256 if self.tokenizer else None,
                format=self.settings.family,
                trained=describe(self.settings, self.step, self.data, self.bounds),
            )
            self.run.save(Saved(tensors, optimizer, state), self.settings.train.keep, folder_config, self.tokenizer)
        self.team.wait()

    def more_tensors(self) -> dict[str, Tensor]:
        """What a kind of training keeps beside the optimizers, under names that begin with MORE."""
        return {}

    def take_more(self, tensors: dict[str, Tensor]) -> None:
        """Continue with what `more_tensors` gave."""

    def begin(self) -> None:
        """Begin with the weights of train.init, where there is one; a resumed run has its own.

        A model that JUMPs may begin with one that does not, and a pointer that looks ahead with one that does not:
        what is missing of the pointer is fresh then.
        """
        source = self.settings.train.init
        if not source:
            return
        given = weights(self.family.load_model(source))
        plain = weights(self.family.make_model(self.settings))
        fresh = {name: tensor for name, tensor in plain.items() if name.startswith(POINTER) and name not in given}
        tensors = self._read(given | fresh, source)
        set_weights(self.model, {name: tensor for name, tensor in tensors.items() if name not in fresh})

    def _read(self, tensors: dict[str, Tensor], source: str) -> dict[str, Tensor]:
        """Tensors as files hold them, as the model holds them."""
        model = self.family.make_model(self.settings)
        load_weights(model, tensors, source)
        return model.state_dict()

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint, on the data that it was made with."""
        made_with = saved.state.get("data_sha256", "unknown")
        if made_with != self.data:
            raise CheckpointError(
                f"the checkpoint was made with other data (sha256 {made_with[:12]}, now {self.data[:12]}); give the "
                "folder the run began with as --data, or start another run"
            )
        family = saved.state.get("family", "reviser")
        if family != self.settings.family:
            raise CheckpointError(
                f"the checkpoint is of family={family}, not {self.settings.family}; drop the setting that changes it"
            )
        tensors = self._read(saved.weights, "the checkpoint")
        # Before the weights: torch sets up an optimizer's state by a step with a rate of 0.
        more = {name: tensor for name, tensor in saved.optimizer.items() if name.startswith(MORE)}
        set_optimizers(self.model, self.optimizers, {n: t for n, t in saved.optimizer.items() if n not in more})
        self.take_more(more)
        set_weights(self.model, tensors)
        self.step, self.position = int(saved.state["step"]), Position.from_json(saved.state["position"])

    def finish(self) -> None:
        """Write the model folder of the finished run."""
        model = self._gathered()
        if not self.bounds:
            # The run had already reached its last step.
            self._bound_heldout()
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            folder, trained = self.run.folder / "model", describe(self.settings, self.step, self.data, self.bounds)
            with self.run.writing(folder):
                self.family.save_model(model, folder, self.tokenizer, trained)
        self.team.wait()

    @contextmanager
    def _listening(self, handle_signals: bool) -> Iterator[None]:
        """SIGINT and SIGTERM ask the loop to save and stop after the step it is in."""

        def note(number: int, frame: Any) -> None:
            self.stop_signal = number

        before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM) if handle_signals else ():
                before[number] = signal.signal(number, note)
        except ValueError:
            before = {}  # Not the main thread, which alone may handle signals.
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
