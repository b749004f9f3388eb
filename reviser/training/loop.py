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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reviser.data.batches import Batch, Batches, Position
from reviser.data.examples import Slots
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.errors import CheckpointError, ConfigError, DivergenceError
from reviser.model.checkpoint import from_pretrained, load_weights, save_pretrained, weights
from reviser.model.folder import Trained
from reviser.model.transformer import Transformer
from reviser.orders.policies import Order
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer
from reviser.training.distributed import Team, copy_into, full_tensor, spread, syncing
from reviser.training.feed import Feed, Work
from reviser.training.heldout import Bound, Heldout, Texts
from reviser.training.objective import Learner, Objective, Part, host_inputs
from reviser.training.optimizer import build_optimizers, lr_factor, named_state, set_lr
from reviser.training.progress import Progress, Speed
from reviser.training.provenance import describe
from reviser.training.runs import Run, Saved
from reviser.training.samples import write_samples
from reviser.training.settings import RunConfig


class Trainer:
    """Everything one process needs to train one run.

    Another family of models overrides what `make_` and `write_` make and write, and how a batch is prepared.
    """

    families: tuple[str, ...] = ("reviser",)

    def __init__(
        self, settings: RunConfig, slots: Slots, team: Team, run: Run | None = None, heldout: Shards | None = None
    ) -> None:
        train = settings.train
        if settings.family not in self.families:
            raise ValueError(f"{type(self).__name__} does not train {settings.family}")
        if train.rows // train.accumulate % team.world:
            raise ConfigError(
                f"train.rows={train.rows} in accumulate={train.accumulate} parts do not divide over {team.world} "
                "processes; choose a multiple"
            )
        self.settings, self.slots, self.run, self.team = settings, slots, run, team
        self.step, self.stop_signal = 0, 0
        self.bounds: dict[str, Bound] = {}
        self._last: tuple[Tensor, float, Tensor] | None = None
        self._whole: Transformer | None = None
        torch.manual_seed(settings.train.seed)
        model = self.make_model().to(team.device)
        is_cuda = team.device.type == "cuda"
        self.precision = settings.train.precision
        if self.precision == "auto":
            self.precision = "bf16" if is_cuda else "float32"
        self.objective = self.make_objective(model, fuse=settings.train.compile and is_cuda)
        self.module = spread(self.objective, team, settings.train.parallel)
        self.model = model
        self.optimizers = build_optimizers(model, settings.optimizer)
        if settings.train.compile and is_cuda:
            self._compile()
        order = parse_order(settings.data.order)
        self.packer = self.make_packer(order)
        self.tokenizer = heldout.tokenizer if heldout else None
        self.data = heldout.header.sha256 if heldout else ""
        self.heldout = self._hold_out(heldout, order) if heldout and order.has_likelihood else {}
        self.position = Position()

    def make_model(self) -> Transformer:
        """A model with fresh weights, on the CPU."""
        return Transformer(self.settings.model)

    def make_objective(self, model: Transformer, fuse: bool) -> Learner:
        """The model with its loss."""
        return Objective(model, fuse)

    def make_packer(self, order: Order) -> Packer:
        """What turns examples into rows."""
        settings = self.settings
        # Noise may fill a canvas beyond its final text.
        longest = settings.data.jobs.longest if order.has_likelihood else settings.model.max_length
        return Packer(
            order, settings.rules, settings.model.canvas, settings.data.row, settings.model.context, longest
        )

    def make_heldout(self, shards: Shards, order: Order, count: int, infill: bool) -> Texts:
        """So many held-out texts of a job."""
        settings, train = self.settings, self.settings.train
        heldout = Heldout(
            shards, order, settings.rules, settings.model.canvas, count, train.eval_prefix, train.eval_length, infill
        )
        heldout.check_fits(settings.model)
        return heldout

    def prepare(self, batch: Batch) -> Part:
        """A batch as tensors on the host."""
        settings, is_pinned = self.settings, self.team.device.type == "cuda"
        return host_inputs(batch.rows, settings.model.context, settings.train.masked, is_pinned)

    def write_samples(self, model: Transformer, tokenizer: Tokenizer) -> str:
        """Texts for a person to read."""
        return write_samples(model, tokenizer, self.settings)

    def write_model(self, model: Transformer, folder: Path, tokenizer: Tokenizer, trained: Trained) -> None:
        """The model folder."""
        save_pretrained(model, folder, tokenizer, trained=trained, overwrite=True)

    def read_model(self, spec: str) -> Transformer:
        """The model of a folder or hub id."""
        return from_pretrained(spec)

    def _hold_out(self, shards: Shards, order: Order) -> dict[str, Texts]:
        """What is measured of each job."""
        counts = {"continue": self.settings.train.eval_examples, "infill": self.settings.train.eval_infill}
        return {
            job: self.make_heldout(shards, order, count, infill=job == "infill")
            for job, count in counts.items()
            if count
        }

    def _compile(self) -> None:
        if self.team.world > 1 and self.settings.train.parallel == "fsdp":
            for block in self.model.blocks:
                block.compile()
        else:
            self.objective.trunk = torch.compile(self.model.hidden, dynamic=False)

    def train(self, steps: int | None = None) -> dict[str, Bound]:
        """Train to the end, or for some steps; returns the last held-out bound of each job."""
        try:
            return self._train(steps)
        except OSError as error:
            if self.run is None:
                raise
            file = f"{error.filename}: " if error.filename else ""
            raise self.run.explain(f"training stopped at step {self.step}: {file}{error.strerror or error}") from None

    def _train(self, steps: int | None) -> dict[str, Bound]:
        train, last = self.settings.train, min(self.settings.train.steps, self.step + (steps or 1 << 60))
        progress = Progress(self.settings, self.step, self.team.is_first, self.run, self.team.world)
        feed = self.feed(progress.note)
        bounds: dict[str, Bound] = {}
        with self._listening(), progress:
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

    def feed(self, note: Callable[[str], None] | None = None) -> Feed:
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
        self._whole, self.bounds = None, {}
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
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step, self.position, self._last = self.step + 1, work.batches[-1].after, (total, count, norm)
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
        kept = self.run.last_good() if self.run else "nothing is saved by this process"
        raise DivergenceError(
            f"step {self.step}: {found}; {kept}; continue it with a smaller --set optimizer.lr or optimizer.clip"
        )

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
        """The model with whole tensors, where its own lie in pieces; gathered once a step."""
        if self.team.world == 1 or self.settings.train.parallel == "ddp":
            return self.model
        if self._whole is None:
            self._whole = self.make_model().to(self.team.device)
            with torch.no_grad():
                for target, source in zip(self._whole.parameters(), self.model.parameters(), strict=True):
                    target.copy_(full_tensor(source))
        return self._whole

    def _sample(self) -> None:
        model = self._gathered()
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            self.run.keep_samples(self.step, self.write_samples(model, self.tokenizer))

    def save(self) -> None:
        """Write a checkpoint of a state that is sound; all processes must call this."""
        self._check_last()
        tensors = weights(self._gathered())
        optimizer = {
            f"{name}/{key}": full_tensor(value) if isinstance(value, Tensor) else torch.tensor(value)
            for name, state in named_state(self.optimizers, self.model)
            for key, value in state.items()
        }
        if self.team.is_first and self.run is not None:
            state = {
                "position": self.position.as_json(), "data_sha256": self.data, "family": self.settings.family
            }  # fmt: skip
            self.run.save(self.step, tensors, optimizer, state, self.settings.train.keep)
        self.team.wait()

    def begin(self) -> None:
        """Begin with the weights of train.init, where there is one; a continued run has its own."""
        if not self.settings.train.init:
            return
        given = self.make_model()
        load_weights(given, weights(self.read_model(self.settings.train.init)), self.settings.train.init)
        self._copy_weights(given)

    def _copy_weights(self, given: Transformer) -> None:
        for target, source in zip(self.model.parameters(), given.parameters(), strict=True):
            copy_into(target.data, source.data)

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint, on the data that it was made with."""
        made_with = saved.state.get("data_sha256", "unknown")
        if made_with != self.data:
            raise CheckpointError(
                f"the checkpoint was made with other data (sha256 {made_with[:12]}, now {self.data[:12]}); a run "
                "goes on with the data it was begun with: give that folder as --data, or start a run of its own"
            )
        family = saved.state.get("family", "reviser")
        if family != self.settings.family:
            raise CheckpointError(
                f"the checkpoint is of family={family}, not {self.settings.family}; a run goes on as what it began as"
            )
        whole_model = self.make_model()
        load_weights(whole_model, saved.weights, "the checkpoint")
        self._copy_weights(whole_model)
        self._restore_optimizer(saved.optimizer)
        self.step, self.position = int(saved.state["step"]), Position.from_json(saved.state["position"])

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        parameters = dict(self.model.named_parameters())
        by_name: dict[str, dict[str, Tensor]] = {}
        for path, tensor in tensors.items():
            name, _, key = path.rpartition("/")
            by_name.setdefault(name, {})[key] = tensor
        owners = {id(p): opt for opt in self.optimizers for group in opt.param_groups for p in group["params"]}
        for name, entries in by_name.items():
            if name not in parameters:
                raise CheckpointError(f"the optimizer's state names {name}, which this model does not have")
            parameter = parameters[name]
            owner = owners[id(parameter)]
            if ("exp_avg" in entries) != isinstance(owner, torch.optim.AdamW):
                raise CheckpointError(
                    f"the checkpoint was not made with optimizer.name={self.settings.optimizer.name}; go on with the "
                    "optimizer it was begun with"
                )
            owner.state[parameter] = {key: _like(parameter, tensor) for key, tensor in entries.items()}

    def finish(self) -> None:
        """Write the model folder of the finished run."""
        model = self._gathered()
        if not self.bounds:
            # A run that had come to its end before.
            self._bound_heldout()
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            folder, trained = self.run.folder / "model", describe(self.settings, self.step, self.data, self.bounds)
            with self.run.writing(folder):
                self.write_model(model, folder, self.tokenizer, trained)
        self.team.wait()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask the loop to save and stop after the step it is in."""

        def note(number: int, frame: Any) -> None:
            self.stop_signal = number

        before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, note)
        except ValueError:
            before = {}  # not the main thread: whoever runs us listens
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A tensor of the optimizer's state as it lies beside its parameter."""
    if tensor.shape != parameter.shape:
        # AdamW's count of steps stays on the CPU unless its kernel is fused.
        return tensor.to(parameter.device) if parameter.device.type == "cuda" else tensor.clone()
    target = torch.empty_like(parameter, dtype=tensor.dtype)
    copy_into(target, tensor)
    return target
