"""PPO with a ranking judge: a step is a round, in which the model writes, a judge ranks and the model is updated.

    prompts -> rollouts -> guard, judge -> ranks -> rewards -> advantages -> epochs of clipped updates

All of a round follows from the weights, the optimizers and (seed, step), so a checkpoint holds all there is. Rollouts
take their weights from the model in memory (rollouts.py), at temperature 1 and without truncation; the probabilities
that ratios are measured against are computed by the training model before the first update of a round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import CheckpointError, ConfigError
from reviser.model.checkpoint import weights
from reviser.model.transformer import Transformer
from reviser.own_states.gathering import Gatherer, TextRound, TextRounds
from reviser.own_states.policy_loss import Episodes, PolicyObjective
from reviser.own_states.ppo_settings import PpoConfig, PpoRunConfig
from reviser.training.distributed import Team
from reviser.training.feed import Work
from reviser.training.loop import MORE, Trainer
from reviser.training.objective import Learner
from reviser.training.optimizer import lr_factor, set_lr
from reviser.training.progress import Progress, Speed
from reviser.training.reviser_family import ReviserFamily
from reviser.training.runs import Run
from reviser.training.settings import RunConfig

START, VALUE, MOMENTS = f"{MORE}start", f"{MORE}value.", f"{MORE}value_optimizer."
"""Names in checkpoints: the sha256 of the model that training began with, the value head, its optimizer's state."""


@dataclass(frozen=True)
class PpoFamily(ReviserFamily):
    """Models that edit, with the loss of PPO."""

    ppo: PpoConfig = field(default_factory=PpoConfig)

    def make_objective(self, model: Transformer, settings: RunConfig, fuse: bool) -> Learner:
        return PolicyObjective(model, fuse, self.ppo)


class PpoTrainer(Trainer):
    """Trains a model on what a judge makes of its own texts."""

    objective: PolicyObjective

    def __init__(
        self, settings: RunConfig, slots: Slots, team: Team, run: Run | None = None, heldout: Shards | None = None
    ) -> None:
        assert isinstance(settings, PpoRunConfig)
        assert heldout is not None
        if team.world > 1:
            raise ConfigError(f"ppo trains in one process, not in {team.world}; start it without torchrun")
        super().__init__(settings, slots, team, run, heldout, PpoFamily(ppo=settings.ppo))
        self.ppo, head = settings.ppo, self.objective.value_head
        self.value_optimizer = None if head is None else torch.optim.AdamW(head.parameters(), settings.ppo.value_lr)
        self.gatherer = Gatherer(settings, slots, heldout.tokenizer, self.objective, self.packer, team.device)

    def begin(self) -> None:
        super().begin()
        self._freeze_start()

    def _freeze_start(self) -> None:
        """Keep the model that training began with, to measure how far it goes from there."""
        start = self.family.load_model(self.settings.train.init).to(self.team.device).eval()
        self.objective.start[:] = [start.requires_grad_(False)]
        digest = hashlib.sha256(b"".join(each.cpu().numpy().tobytes() for each in weights(start).values())).digest()
        self.start_sha256 = torch.tensor(list(digest), dtype=torch.uint8)

    def more_tensors(self) -> dict[str, Tensor]:
        head, optimizer = self.objective.value_head, self.value_optimizer
        found = {START: self.start_sha256}
        if head is not None and optimizer is not None:
            found |= {f"{VALUE}{name}": tensor for name, tensor in head.state_dict().items()}
            for number, moments in optimizer.state_dict()["state"].items():
                found |= {f"{MOMENTS}{number}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        return found

    def take_more(self, tensors: dict[str, Tensor]) -> None:
        self._freeze_start()
        if not torch.equal(tensors.get(START, torch.zeros(0)), self.start_sha256):
            raise CheckpointError(
                f"{self.settings.train.init} is not the model that this run began with; give that one as train.init"
            )
        head, optimizer = self.objective.value_head, self.value_optimizer
        if head is None or optimizer is None:
            return
        own = {name.removeprefix(VALUE): tensor for name, tensor in tensors.items() if name.startswith(VALUE)}
        if not own:
            raise CheckpointError("the checkpoint has no value head; resume with ppo.advantage=group")
        head.load_state_dict(own)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(MOMENTS):
                number, _, moment = name.removeprefix(MOMENTS).partition(".")
                state.setdefault(int(number), {})[moment] = tensor
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})

    def feed(self, note: Callable[[str], None] | None = None) -> TextRounds:
        return TextRounds(lambda: self.gatherer.gather(self.step))

    def advance(self, work: Work, progress: Progress) -> None:
        """Update the model on a round."""
        assert isinstance(work, TextRound)
        settings, parts = self.settings, work.parts
        self._full_model, self.bounds = None, {}
        # No dropout: a ratio begins at 1.
        self.module.eval()
        set_lr(self.optimizers, lr_factor(self.step, settings.train.steps, settings.optimizer), settings.optimizer)
        order, seen = np.random.default_rng([settings.train.seed, self.step]), dict[str, float]()
        self._is_updating = True
        for _ in range(self.ppo.epochs):
            for number in order.permutation(len(parts)):
                for name, value in self._update(parts[number]).items():
                    seen[name] = seen.get(name, 0.0) + value
        self.step += 1
        self._is_updating = False
        progress.advance(Speed.of(work, 1))
        self.shown = work.samples
        if self.step % settings.train.log_every == 0 or self.step in (1, settings.train.steps):
            self._check_last()
            labels = seen.pop("labels")
            progress.report(self.step, **work.measured, **{name: value / labels for name, value in seen.items()})
            progress.show_text(self.step, "rollouts", work.samples)

    def _update(self, part: list[Episodes]) -> dict[str, float]:
        """One step of the optimizers; returns sums over the labels."""
        device, count = self.team.device, sum(each.count for each in part)
        total, seen = torch.zeros((), device=device), dict[str, float]()
        for episodes in part:
            with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.module(episodes.to(device))
            (loss / count).backward()
            total += loss.detach()
            for name, value in self.objective.seen.items():
                seen[name] = seen.get(name, 0.0) + float(value)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.optimizer.clip)
        for optimizer in chain(self.optimizers, [self.value_optimizer] if self.value_optimizer else []):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._last = total, count, norm
        return seen | {"labels": count, "loss_nats": float(total), "gradient_norm": float(norm) * count}

    def _sample(self) -> None:
        super()._sample()
        if self.run is not None:
            self.run.keep_samples(self.step, self.shown, "rollouts")
