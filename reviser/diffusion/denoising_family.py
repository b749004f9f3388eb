"""The families `mdlm` and `sedd`, as training knows them; `data.order` is not read, for a denoiser has none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reviser.data.batches import Batch
from reviser.data.shards import Shards
from reviser.diffusion.canvases import CanvasPacker
from reviser.diffusion.denoiser import FAMILIES, Denoiser, num_parameters
from reviser.diffusion.denoiser_folder import load_denoiser, save_denoiser
from reviser.diffusion.denoising_loss import DenoisingObjective, NoisyInputs, noisy_inputs
from reviser.diffusion.heldout_canvases import HeldoutCanvases
from reviser.diffusion.sampler import RoomRequest, fill
from reviser.model.folder import Trained
from reviser.model.transformer import Transformer
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer
from reviser.training.distributed import Team
from reviser.training.families import Family, Job
from reviser.training.reviser_family import PROMPTS
from reviser.training.settings import RunConfig

SAMPLE_ROOM, SAMPLE_STEPS = 48, 32


@dataclass(frozen=True)
class DenoiserFamily:
    name: str
    uses_order: bool = False

    def make_model(self, settings: RunConfig) -> Denoiser:
        return FAMILIES[self.name](settings.model)

    def make_objective(self, model: Transformer, settings: RunConfig, fuse: bool) -> DenoisingObjective:
        return DenoisingObjective(_denoiser(model), fuse)

    def make_packer(self, settings: RunConfig, tokenizer: Tokenizer | None) -> CanvasPacker:
        model = settings.model
        return CanvasPacker.of(model.alphabet, settings.data.jobs, settings.data.row, model.context)

    def make_heldout(self, settings: RunConfig, shards: Shards, count: int, job: Job) -> HeldoutCanvases:
        train = settings.train
        heldout = HeldoutCanvases(shards, count, train.eval_prefix, train.eval_length, job == "infill")
        heldout.check_fits(settings.model)
        return heldout

    def prepare(self, batch: Batch, settings: RunConfig, team: Team) -> NoisyInputs:
        after, model, is_pinned = batch.after, settings.model, team.device.type == "cuda"
        stream = Random.of(settings.train.seed, after.block, after.row, team.rank).state
        is_timed = FAMILIES[self.name].is_timed
        return noisy_inputs(batch.rows, model.alphabet.none, model.context, stream, is_timed, is_pinned)

    def write_samples(self, model: Transformer, tokenizer: Tokenizer, settings: RunConfig) -> str:
        """What each prompt grows into."""
        denoiser, context = _denoiser(model), settings.model.context
        room = min(SAMPLE_ROOM, context // 2)
        prompts = [tokenizer.encode(prompt)[: context - room] for prompt in PROMPTS]
        requests = [RoomRequest(room, number, prompt) for number, prompt in enumerate(prompts)]
        was_training = denoiser.training
        filled = fill(denoiser.eval(), requests, SAMPLE_STEPS, device=denoiser.embedding.weight.device)
        denoiser.train(was_training)
        parts = []
        for prompt, each in zip(prompts, filled, strict=True):
            ending = "ended" if each.has_stopped else "out of room"
            title = f"--- {tokenizer.decode(prompt)!r}, {each.num_passes} passes, {ending}"
            parts.append(f"{title}\n{tokenizer.decode([*prompt, *each.text])}\n")
        return "\n".join(parts)

    def save_model(self, model: Transformer, folder: Path, tokenizer: Tokenizer, trained: Trained) -> None:
        save_denoiser(_denoiser(model), folder, tokenizer, trained=trained, overwrite=True)

    def load_model(self, spec: str) -> Denoiser:
        return load_denoiser(spec)

    def count_parameters(self, settings: RunConfig) -> int:
        return num_parameters(self.name, settings.model)


def _denoiser(model: Transformer) -> Denoiser:
    assert isinstance(model, Denoiser)
    return model


MDLM: Family = DenoiserFamily("mdlm")
SEDD: Family = DenoiserFamily("sedd")
