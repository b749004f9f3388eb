"""The family `reviser`: a Transformer over the history of edit actions, learned from the trajectories of an order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reviser.data.batches import Batch
from reviser.data.examples import with_ends
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.data.slots import heldout_drafts
from reviser.decoding.engine import PAPER, Engine, Request
from reviser.model.checkpoint import from_pretrained, save_pretrained
from reviser.model.folder import Trained
from reviser.model.transformer import Transformer, num_parameters
from reviser.orders.record import Draft
from reviser.orders.registry import parse_order
from reviser.tokenizer import Tokenizer
from reviser.training.distributed import Team
from reviser.training.families import Family, Job
from reviser.training.heldout import Heldout
from reviser.training.objective import Inputs, Learner, Objective, host_inputs
from reviser.training.settings import RunConfig

PROMPTS = ("", "The old lighthouse", "In the spring of that year,")
"""What a model writes into while it is trained, so that a person can read along."""
MAX_ACTIONS = 64


@dataclass(frozen=True)
class ReviserFamily:
    name: str = "reviser"
    uses_order: bool = True

    def make_model(self, settings: RunConfig) -> Transformer:
        return Transformer(settings.model)

    def make_objective(self, model: Transformer, settings: RunConfig, fuse: bool) -> Learner:
        return Objective(model, fuse, settings.train.find_mistakes)

    def make_packer(self, settings: RunConfig, tokenizer: Tokenizer | None) -> Packer:
        order = parse_order(settings.data.order)
        # Noise may fill a canvas beyond its final text.
        data, model = settings.data, settings.model
        told = parse_order(data.jobs.told_order) if data.jobs.told else None
        has_noise = not order.has_likelihood or (told is not None and not told.has_likelihood)
        longest = model.max_length if has_noise else data.jobs.longest
        rules = with_ends(settings.rules, order, tokenizer)
        rules = rules if told is None else with_ends(rules, told, tokenizer)
        ahead = model.pointer_ahead if settings.train.find_mistakes else None
        return Packer(
            order, rules, model.canvas, data.row, model.context, longest, data.jobs.learn_given, told, ahead
        )

    def make_heldout(self, settings: RunConfig, shards: Shards, count: int, job: Job) -> Heldout | None:
        order, train = parse_order(settings.data.order), settings.train
        if not order.has_likelihood:
            return None
        rules = with_ends(settings.rules, order, shards.tokenizer)
        data, canvas = settings.data, settings.model.canvas
        if job == "edit":
            drafts = heldout_drafts(shards, data.jobs, count, data.errors, data.mistakes)
            heldout = Heldout(drafts, shards.tokenizer, order, rules, canvas)
        else:
            sizes = count, train.eval_prefix, train.eval_length
            heldout = Heldout.of(shards, order, rules, canvas, *sizes, job == "infill", data.jobs.cut_stops)
        heldout.check_fits(settings.model)
        return heldout

    def prepare(self, batch: Batch, settings: RunConfig, team: Team) -> Inputs:
        return host_inputs(batch.rows, settings.model.context, settings.train.masked, team.device.type == "cuda")

    def write_samples(self, model: Transformer, tokenizer: Tokenizer, settings: RunConfig) -> str:
        return _write_samples(model, tokenizer, settings)

    def save_model(self, model: Transformer, folder: Path, tokenizer: Tokenizer, trained: Trained) -> None:
        save_pretrained(model, folder, tokenizer, trained=trained, overwrite=True)

    def load_model(self, spec: str) -> Transformer:
        return from_pretrained(spec)

    def count_parameters(self, settings: RunConfig) -> int:
        return num_parameters(settings.model)


def _write_samples(model: Transformer, tokenizer: Tokenizer, settings: RunConfig) -> str:
    """What each prompt grows into, with its number of actions."""
    # A tiny model may have no room for all of a prompt.
    room = min(settings.model.context // 2, settings.model.max_length)
    prompts = [tokenizer.encode(prompt)[:room] for prompt in PROMPTS]
    requests = [
        Request(Draft.continuation(tokens, settings.rules), MAX_ACTIONS, number)
        for number, tokens in enumerate(prompts)
    ]
    parts = []
    for tokens, written in zip(prompts, Engine(model, PAPER, len(requests)).write(requests), strict=True):
        title = f"--- {tokenizer.decode(tokens)!r}, {len(written.actions)} actions, ended by {written.ended_by}"
        parts.append(f"{title}\n{tokenizer.decode(written.canvas.tokens)}\n")
    return "\n".join(parts)


REVISER: Family = ReviserFamily()
