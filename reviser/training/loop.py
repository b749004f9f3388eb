"""The training loop: steps, measurements, checkpoints; stops and continues without a trace in the losses.

A step draws its batch from the stream's position, seeds the dropout with (seed, step, process), adds up the
gradients of its parts weighted by their labels, clips, and steps. What a checkpoint holds (weights, optimizer,
step, position) is therefore all there is: continuing gives the same losses bit for bit on a CPU.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from reviser.data.batches import Batches, Position
from reviser.data.examples import Slots
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.errors import CheckpointError, ConfigError, DivergenceError
from reviser.model.checkpoint import load_weights, save_pretrained, weights
from reviser.model.transformer import Transformer
from reviser.training.distributed import Team, copy_whole, sharing, spread, whole
from reviser.training.feed import Feed, Work
from reviser.training.heldout import Bound, Heldout
from reviser.training.objective import Objective
from reviser.training.optimizer import build_optimizers, lr_factor, named_state, set_lr
from reviser.training.progress import Progress, Speed
from reviser.training.runs import Run, Saved
from reviser.training.samples import write_samples
from reviser.training.settings import RunConfig
from reviser.trajectory.names import parse_order
from reviser.trajectory.rng import Random


class Trainer:
    """Everything one process needs to train one run."""

    def __init__(
        self, settings: RunConfig, slots: Slots, team: Team, run: Run | None = None, heldout: Shards | None = None
    ) -> None:
        train = settings.train
        if train.rows // train.accumulate % team.world:
            raise ConfigError(
                f"train.rows={train.rows} in accumulate={train.accumulate} parts do not divide over {team.world} "
                "processes; choose a multiple"
            )
        self.settings, self.slots, self.run, self.team = settings, slots, run, team
        self.step, self.stop_signal = 0, 0
        self._last: tuple[Tensor, float, Tensor] | None = None
        torch.manual_seed(settings.train.seed)
        model = Transformer(settings.model).to(team.device)
        is_cuda = team.device.type == "cuda"
        self.precision = settings.train.precision
        if self.precision == "auto":
            self.precision = "bf16" if is_cuda else "float32"
        self.objective = Objective(model, fuse=settings.train.compile and is_cuda)
        self.module = spread(self.objective, team, settings.train.parallel)
        self.model = model
        self.optimizers = build_optimizers(model, settings.optimizer)
        if settings.train.compile and is_cuda:
            self._compile()
        order = parse_order(settings.data.order)
        # Noise may fill a canvas beyond its final text.
        longest = settings.data.jobs.longest if order.has_likelihood else settings.model.max_length
        self.packer = Packer(
            order, settings.rules, settings.model.canvas, settings.data.row, settings.model.context, longest
        )
        self.heldout, self.tokenizer = None, heldout.tokenizer if heldout else None
        if heldout is not None and order.has_likelihood:
            self.heldout = Heldout(
                heldout, order, settings.rules, settings.model.canvas, train.eval_examples, train.eval_prefix,
                train.eval_length,
            )  # fmt: skip
        self.position = Position()

    def _compile(self) -> None:
        if self.team.world > 1 and self.settings.train.parallel == "fsdp":
            for block in self.model.blocks:
                block.compile()
        else:
            self.objective.trunk = torch.compile(self.model.hidden, dynamic=False)

    def train(self, steps: int | None = None) -> Bound | None:
        """Train to the end, or for some steps; returns the last held-out bound."""
        try:
            return self._train(steps)
        except OSError as error:
            if self.run is None:
                raise
            raise self.run.explain(error) from None

    def _train(self, steps: int | None) -> Bound | None:
        train, last = self.settings.train, min(self.settings.train.steps, self.step + (steps or 1 << 60))
        feed = self.feed()
        bound = None
        progress = Progress(self.settings, self.step, self.team.is_first, self.run, self.team.world)
        with self._listening(), progress:
            try:
                for work in feed if self.step < last else ():
                    self.advance(work, progress)
                    is_last = self.step == last
                    if self.step % train.eval_every == 0 or is_last:
                        bound = self._measure(progress)
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
        return bound

    def feed(self) -> Feed:
        """The work of the steps to come."""
        data, train, team = self.settings.data, self.settings.train, self.team
        stream = Batches(
            self.slots, self.packer, train.rows // train.accumulate, train.seed, data.workers, self.position,
            team.rank, team.world,
        )  # fmt: skip
        return Feed(stream, self.settings, team.device)

    def advance(self, work: Work, progress: Progress) -> None:
        """Make one step."""
        settings, team = self.settings, self.team
        self.module.train()
        torch.manual_seed(Random.of(settings.train.seed, self.step, team.rank).state >> 1)
        set_lr(self.optimizers, lr_factor(self.step, settings.train.steps, settings.optimizer), settings.optimizer)
        count = team.sum(float(sum(each.num_labels for each in work.inputs)))
        total: Tensor = torch.zeros((), device=team.device)
        for number, inputs in enumerate(work.inputs, 1):
            with sharing(self.module, is_last=number == len(work.inputs)):
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
            epoch=self.position.epoch,
        )  # fmt: skip

    def _check_last(self) -> tuple[float, float]:
        """Loss and gradient norm of the last step, of all processes together."""
        if self._last is None:
            return 0.0, 0.0
        total, count, norm = self._last
        loss, norm_value = self.team.sum(float(total)) / count, float(whole(norm))
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

    def _measure(self, progress: Progress) -> Bound | None:
        """The held-out bound; one that is no number ends the run before anything is saved."""
        if self.heldout is None:
            return None
        bound = None
        if self.team.world == 1 or self.settings.train.parallel == "ddp":
            if self.team.is_first:
                bound = self.heldout.measure(self.model, self.team.device, self.precision)
        else:
            bound = self.heldout.measure(self._gathered(), self.team.device, self.precision)
        nats = self.team.sum(bound.nats_per_token if bound is not None else 0.0)
        self._check_finite({"held-out bound": nats})
        if bound is not None:
            progress.report(self.step, bound_nats_per_token=bound.nats_per_token, bound_error=bound.error,
                            bound_perplexity=bound.perplexity, bits_per_byte=bound.bits_per_byte)  # fmt: skip
        return bound

    def _gathered(self) -> Transformer:
        """The model with whole tensors, where its own lie in pieces."""
        if self.team.world == 1 or self.settings.train.parallel == "ddp":
            return self.model
        copy = Transformer(self.settings.model).to(self.team.device)
        with torch.no_grad():
            for target, source in zip(copy.parameters(), self.model.parameters(), strict=True):
                target.copy_(whole(source))
        return copy

    def _sample(self) -> None:
        model = self._gathered()
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            write_samples(model, self.tokenizer, self.settings, self.run.folder / "samples", self.step)

    def save(self) -> None:
        """Write a checkpoint of a state that is sound; all processes must call this."""
        self._check_last()
        tensors = weights(self._gathered())
        optimizer = {
            f"{name}/{key}": whole(value) if isinstance(value, Tensor) else torch.tensor(value)
            for name, state in named_state(self.optimizers, self.model)
            for key, value in state.items()
        }
        if self.team.is_first and self.run is not None:
            self.run.save(self.step, tensors, optimizer, {"position": asdict(self.position)},
                          self.settings.train.keep)  # fmt: skip
        self.team.wait()

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint."""
        whole_model = Transformer(self.settings.model)
        load_weights(whole_model, saved.weights, "the checkpoint")
        for target, source in zip(self.model.parameters(), whole_model.parameters(), strict=True):
            copy_whole(target.data, source.data)
        self._restore_optimizer(saved.optimizer)
        self.step, self.position = int(saved.state["step"]), Position(**saved.state["position"])

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
        if self.team.is_first and self.run is not None and self.tokenizer is not None:
            save_pretrained(model, self.run.folder / "model", self.tokenizer, overwrite=True)
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
    copy_whole(target, tensor)
    return target
