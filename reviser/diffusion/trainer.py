"""Training a denoiser: the loop, data, optimizer, checkpoints and run folder of a Reviser; model and loss its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reviser.data.batches import Batch
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.diffusion.canvases import CanvasPacker
from reviser.diffusion.denoiser import FAMILIES, Denoiser, num_parameters
from reviser.diffusion.denoiser_folder import load_denoiser, save_denoiser
from reviser.diffusion.denoising_loss import DenoisingObjective, NoisyInputs, noisy_inputs
from reviser.diffusion.heldout_canvases import HeldoutCanvases
from reviser.diffusion.sampler import RoomRequest, fill
from reviser.model import size
from reviser.model.folder import Trained
from reviser.model.transformer import Transformer
from reviser.orders.policies import Order
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer
from reviser.training.loop import Trainer
from reviser.training.samples import PROMPTS
from reviser.training.settings import RunConfig

SAMPLE_ROOM, SAMPLE_STEPS = 48, 32


class DenoisingTrainer(Trainer):
    """Everything one process needs to train MDLM or SEDD; `data.order` is not read, for a denoiser has none."""

    families = tuple(FAMILIES)

    def make_model(self) -> Denoiser:
        return FAMILIES[self.settings.family](self.settings.model)

    def make_objective(self, model: Transformer, fuse: bool) -> DenoisingObjective:
        assert isinstance(model, Denoiser)
        return DenoisingObjective(model, fuse)

    def make_packer(self, order: Order) -> Packer:
        settings = self.settings
        return CanvasPacker.of(settings.rules, settings.data.jobs, settings.data.row, settings.model.context)

    def make_heldout(self, shards: Shards, order: Order, count: int, infill: bool) -> HeldoutCanvases:
        train = self.settings.train
        heldout = HeldoutCanvases(shards, count, train.eval_prefix, train.eval_length, infill)
        heldout.check_fits(self.settings.model)
        return heldout

    def prepare(self, batch: Batch) -> NoisyInputs:
        settings, team, after = self.settings, self.team, batch.after
        stream = Random.of(settings.train.seed, after.block, after.row, team.rank).state
        model = settings.model
        is_timed, is_pinned = FAMILIES[settings.family].is_timed, team.device.type == "cuda"
        return noisy_inputs(batch.rows, model.alphabet.none, model.context, stream, is_timed, is_pinned)

    def write_samples(self, model: Transformer, tokenizer: Tokenizer) -> str:
        """What each prompt grows into."""
        assert isinstance(model, Denoiser)
        room = min(SAMPLE_ROOM, self.settings.model.context // 2)
        prompts = [tokenizer.encode(prompt)[: self.settings.model.context - room] for prompt in PROMPTS]
        requests = [RoomRequest(room, number, prompt) for number, prompt in enumerate(prompts)]
        was_training = model.training
        filled = fill(model.eval(), requests, SAMPLE_STEPS, device=self.team.device)
        model.train(was_training)
        parts = []
        for prompt, each in zip(prompts, filled, strict=True):
            ending = "ended" if each.has_stopped else "out of room"
            title = f"--- {tokenizer.decode(prompt)!r}, {each.num_passes} passes, {ending}"
            parts.append(f"{title}\n{tokenizer.decode([*prompt, *each.text])}\n")
        return "\n".join(parts)

    def write_model(self, model: Transformer, folder: Path, tokenizer: Tokenizer, trained: Trained) -> None:
        assert isinstance(model, Denoiser)
        save_denoiser(model, folder, tokenizer, trained=replace(trained, order=model.family), overwrite=True)

    def read_model(self, spec: str) -> Denoiser:
        return load_denoiser(spec)


def trainer_of(settings: RunConfig) -> type[Trainer]:
    """The trainer of a config's family."""
    return DenoisingTrainer if settings.family in FAMILIES else Trainer


def count_parameters(settings: RunConfig) -> int:
    """Parameters of a config's model, whatever its family."""
    if settings.family in FAMILIES:
        return num_parameters(settings.family, settings.model)
    return size.num_parameters(settings.model)
