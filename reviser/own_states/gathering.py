"""What a round of PPO learns from: prompts are written on K times each, guarded, judged and ranked, and packed.

A round is all that one step of training sees; the probabilities and values in it are those of the weights that wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from reviser.data.batches import Batch, Position, RowPacker
from reviser.data.examples import Examples
from reviser.data.packing import Packer
from reviser.data.slots import Slots
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.rankers import open_ranker
from reviser.orders.rng import Random
from reviser.own_states.advantages import Numbers, episode_rewards, estimate, group_advantages, normalise
from reviser.own_states.episodes import Array, PackedEpisodes, Warmth, oracle_beginnings, pack_rollouts
from reviser.own_states.policy_loss import TYPES, Episodes, PolicyObjective, type_table
from reviser.own_states.ppo_settings import PpoRunConfig
from reviser.own_states.rank_rewards import guarded_rewards, passes_guard
from reviser.own_states.rollouts import Roller, Rollout
from reviser.own_states.seeds import Seeds
from reviser.tokenizer import Tokenizer
from reviser.training.feed import Work
from reviser.training.objective import Inputs, host_inputs

SHOWN = 2
"""Prompts of a round of which the best and the worst text are kept as samples."""


@dataclass(frozen=True)
class TextRound(Work):
    """What one step updates the model on: its parts, each an update of its own."""

    parts: list[list[Episodes]]
    measured: dict[str, float]
    samples: str


class TextRounds:
    """An endless stream of rounds, each made when it is asked for: it needs the weights of that moment."""

    def __init__(self, gather: Callable[[], TextRound]) -> None:
        self.gather = gather

    def __iter__(self) -> Iterator[TextRound]:
        while True:
            yield self.gather()

    def close(self) -> None:
        """Nothing goes on in the background."""


@dataclass(frozen=True)
class Judged:
    """The texts of a round: what was written, whether the guard passed it, what the judge said and its reward."""

    rollouts: list[Rollout]
    texts: list[Generation]
    is_sound: list[bool]
    scores: list[float]
    """0 where the judge was not asked."""
    rewards: list[float]


@dataclass(frozen=True)
class Pack:
    """Some episodes of a round, packed: their numbers, the rows, and which labels are whose."""

    owners: list[int]
    packed: PackedEpisodes
    inputs: Inputs
    spots: list[Array]

    @classmethod
    def of(cls, owners: list[int], packed: PackedEpisodes, inputs: Inputs) -> Pack:
        labelled = inputs.chosen[: inputs.num_labels].numpy()
        return cls(owners, packed, inputs, [np.searchsorted(labelled, places) for places in packed.places])

    def spread(self, known: Sequence[Numbers]) -> Tensor:
        """Numbers of each episode's actions, by its number in the round, as a tensor of the labels."""
        out = np.zeros(len(self.inputs.labels), np.float32)
        for owner, spots in zip(self.owners, self.spots, strict=True):
            out[spots] = known[owner]
        return torch.from_numpy(out)


class Gatherer:
    """Makes rounds."""

    def __init__(
        self, settings: PpoRunConfig, slots: Slots, tokenizer: Tokenizer, objective: PolicyObjective,
        packer: RowPacker, device: torch.device,
    ) -> None:  # fmt: skip
        assert isinstance(packer, Packer)
        self.settings, self.ppo, self.tokenizer = settings, settings.ppo, tokenizer
        self.seeds = Seeds(slots, packer.rules, settings.model.context, settings.train.seed)
        self.objective, self.packer, self.device = objective, packer, device
        self.ranker = open_ranker(settings.ppo.judge, str(device))
        num_rows = min(settings.train.rows, self.ppo.num_texts)
        self.roller = Roller(settings.model, device, num_rows, max_actions=self.ppo.max_actions)
        self.types = type_table(settings.model.alphabet).numpy()
        precision = settings.train.precision
        self.is_mixed = precision == "bf16" or (precision == "auto" and device.type == "cuda")

    def gather(self, step: int) -> TextRound:
        """The round of a step, by the present weights."""
        began, accumulate = time.perf_counter(), self.settings.train.accumulate
        examples, judged = self.write(step)
        packs = self._pack(examples, judged.rollouts, step)
        old, values = self._look(packs)
        advantages, returns = self._weigh(judged, old, values)
        made = [
            Episodes(each.inputs, *(each.spread(known) for known in (old, advantages, returns))) for each in packs
        ]
        parts = [made[first : first + accumulate] for first in range(0, len(made), accumulate)]
        batches, epochs = [Batch(each.packed.rows, Position()) for each in packs], self.ppo.epochs
        measured, samples = self._measure(judged, old), self._show(judged)
        return TextRound(batches * epochs, [*made] * epochs, time.perf_counter() - began, parts, measured, samples)

    def write(self, step: int) -> tuple[Examples, Judged]:
        """The texts of a round, `candidates` a prompt, judged; and the examples that they began with."""
        seed, copies = self.settings.train.seed, self.ppo.candidates
        prompts = self.seeds.examples(np.arange(step * self.ppo.prompts, (step + 1) * self.ppo.prompts))
        drafts = self.seeds.drafts(prompts)
        room = self.settings.model.context - 1
        limits = [min(self.ppo.max_actions, room - len(draft.actions)) for draft in drafts]
        beginnings = oracle_beginnings(self.packer, prompts, self.ppo.oracle_share(step), limits)
        guide = Warmth([each for each in beginnings for _ in range(copies)]) if any(beginnings) else None
        self.roller.take(self.objective.model)
        chosen = [draft for draft in drafts for _ in range(copies)]
        rollouts = self.roller.roll(chosen, Random.of(seed, step).state, guide)
        examples = prompts.select(np.repeat(np.arange(len(prompts)), copies))
        return examples, self._judge(examples, rollouts)

    def _judge(self, examples: Examples, rollouts: list[Rollout]) -> Judged:
        texts, is_sound, copies = [], [], self.ppo.candidates
        for i, rollout in enumerate(rollouts):
            tokens, prefix, suffix = rollout.canvas.tokens, int(examples.prefix[i]), int(examples.suffix[i])
            parts = tokens[:prefix], tokens[prefix : len(tokens) - suffix], tokens[len(tokens) - suffix :]
            before, text, after = map(self.tokenizer.decode, parts)
            number, target = str(i // copies), self.tokenizer.decode(examples.target(i).tolist())
            texts.append(
                Generation(
                    str(i % copies), number, 0, before, text, after, target, rollout.has_stopped, len(parts[1]),
                    len(rollout.actions),
                )
            )  # fmt: skip
            is_sound.append(passes_guard(parts[0], parts[1], rollout.has_stopped, self.ppo.guard))
        scores, rewards = [0.0] * len(texts), list[float]()
        groups = [range(first, first + copies) for first in range(0, len(texts), copies)]
        asked = [[i for i in group if is_sound[i]] for group in groups]
        for own, said in zip(asked, self.ranker.score([[texts[i] for i in own] for own in asked]), strict=True):
            for i, score in zip(own, said, strict=True):
                scores[i] = score
        for group in groups:
            rewards += guarded_rewards([scores[i] for i in group], [is_sound[i] for i in group])
        return Judged(rollouts, texts, is_sound, scores, rewards)

    def _pack(self, examples: Examples, rollouts: list[Rollout], step: int) -> list[Pack]:
        """All episodes, in as many packs as there are parts and parts of parts, each a random choice of them."""
        order = np.random.default_rng([self.settings.train.seed, step, 1]).permutation(len(rollouts))
        packs = []
        for owners in np.array_split(order, self.ppo.parts * self.settings.train.accumulate):
            own = [rollouts[i] for i in owners]
            packed = pack_rollouts(self.packer, examples.select(owners), own, self.ppo.max_actions)
            inputs = host_inputs(packed.rows, self.settings.model.context, pinned=self.device.type == "cuda")
            packs.append(Pack.of(owners.tolist(), packed, inputs))
        return packs

    @torch.no_grad()
    def _look(self, packs: Sequence[Pack]) -> tuple[list[Numbers], list[Numbers]]:
        """Log-probabilities of the actions of each episode, and values of the states before them (0 without a head),
        by the present weights."""
        self.objective.eval()
        old, values = ([np.zeros(0)] * self.ppo.num_texts for _ in range(2))
        for pack in packs:
            inputs = pack.inputs.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed):
                found, expected = self.objective.look(inputs)
            for owner, spots in zip(pack.owners, pack.spots, strict=True):
                old[owner], values[owner] = (each.double().cpu().numpy()[spots] for each in (found, expected))
        return old, values

    def _weigh(
        self, judged: Judged, old: Sequence[Numbers], values: Sequence[Numbers]
    ) -> tuple[list[Numbers], list[Numbers]]:
        """Advantages and returns of each episode's actions."""
        ppo = self.ppo
        rewards = [
            episode_rewards(len(each), final, ppo.action_penalty)
            for each, final in zip(old, judged.rewards, strict=True)
        ]
        if ppo.advantage == "group":
            shared = group_advantages([each.sum() for each in rewards], ppo.candidates)
            same = [np.full(len(each), value) for each, value in zip(rewards, shared, strict=True)]
            return same, same
        pairs = [estimate(*each, ppo.discount, ppo.trace) for each in zip(values, rewards, strict=True)]
        level = normalise(np.concatenate([advantages for advantages, _ in pairs]))
        ends = np.cumsum([len(each) for each in rewards])[:-1]
        return np.split(level, ends), [returns for _, returns in pairs]

    def _measure(self, judged: Judged, old: Sequence[Numbers]) -> dict[str, float]:
        """What TensorBoard shows of a round, but the losses."""
        texts, sound = judged.texts, [i for i, passes in enumerate(judged.is_sound) if passes]
        scores = [judged.scores[i] for i in sound if np.isfinite(judged.scores[i])]
        chosen = [
            (action, told) for each in judged.rollouts
            for action, told, is_guided in zip(each.actions, each.log_probabilities, each.is_guided, strict=True)
            if not is_guided
        ]  # fmt: skip
        rows = np.minimum([action for action, _ in chosen], len(self.types) - 1)
        shares = np.bincount(self.types[rows], minlength=len(TYPES)) / len(rows)
        gap = np.abs(np.array([told for _, told in chosen]) - np.concatenate(old))
        penalties = self.ppo.action_penalty * np.array([len(each) for each in old])
        measured = {
            "judge_score": float(np.mean(scores)) if scores else 0.0,
            "sound_share": len(sound) / len(texts),
            "reward": float(np.mean(np.array(judged.rewards) - penalties)),
            "tokens_per_text": float(np.mean([each.num_tokens for each in texts])),
            "actions_per_text": float(np.mean([each.num_actions for each in texts])),
            "stopped_share": float(np.mean([each.is_stopped for each in texts])),
            "engine_gap_nats": float(gap.mean()),
        }
        return measured | {f"share_{name}": float(share) for name, share in zip(TYPES, shares, strict=True)}

    def _show(self, judged: Judged) -> str:
        """The best and the worst text of some prompts."""
        shown = []
        for first in range(0, SHOWN * self.ppo.candidates, self.ppo.candidates):
            own = sorted(range(first, first + self.ppo.candidates), key=lambda i: -judged.rewards[i])
            for i in (own[0], own[-1]) if first < len(judged.texts) else ():
                each, said = judged.texts[i], "guarded" if not judged.is_sound[i] else f"{judged.scores[i]:.4g}"
                shown.append(
                    f"--- reward {judged.rewards[i]:.2f}, judge {said}\n{each.prefix}|{each.text}|{each.suffix}\n"
                )
        return "\n".join(shown)
