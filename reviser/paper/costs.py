"""What a reproduction will cost, before anything is run: a step in, operations, hours and bytes out.

    train     (6 N + 12 L d T) a position: N weights that every position meets, T the whole context, so at most this
    write     the products of flops.py for the longest text that the budget allows, for each prompt and seed
    score     2 N a token of the evaluator, or a third of training's count for a model's own bound

Hours are operations over a GPU's peak and the share of it that was measured on an H200. Only that GPU was measured:
for others the same share is taken. What is not known, as an evaluator's size, is None.

>>> StepCost(3.6e3 * 989e12 * 0.4, 0.4).hours(989e12)
1.0
"""

from __future__ import annotations

from dataclasses import dataclass

from reviser.actions import Alphabet
from reviser.evaluation.metrics.flops import diffusion_flops, flops
from reviser.evaluation.plan import Step
from reviser.evaluation.systems import ACTIONS_PER_TOKEN, STEPS
from reviser.model.transformer import flops_per_position
from reviser.paper.setup import DENOISERS, SYSTEMS, Setup, writers
from reviser.training.families import count_parameters
from reviser.training.settings import RunConfig

TRAINING_SHARES = {"debug": 0.35, "small": 0.35, "100m": 0.40, "300m": 0.45}
"""Of an H200's peak: nominal_peak_share of paper_100m and paper_300m in results/train_speed_h200.json; small at 1.74
million positions a second in LOG.md, and debug is taken to be like it."""
WRITING_SHARE = 0.0128
"""flops_per_s over the peak of 64 rows at once in results/decode_h200.json: writing waits for memory."""
EVALUATORS = {"smollm2": 134.5e6, "gemma3-270m": 268.1e6}
"""Parameters of those that have a name of their own."""
BYTES_PER_TEXT = 6000
"""Of a generation's line, its trajectory included."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Operations, the share of a GPU's peak they run at, and bytes on the disk."""

    flops: float | None = 0.0
    share: float | None = None
    disk: float = 0.0

    def hours(self, peak: float) -> float | None:
        if self.flops is None:
            return None
        return self.flops / (peak * self.share) / 3600 if self.share else 0.0


def cost_of(setup: Setup, step: Step, alphabet: Alphabet) -> StepCost:
    """The cost of a step that nothing is there for yet."""
    share = TRAINING_SHARES[setup.scale.name]
    if step.kind == "train":
        settings = setup.scale.settings(step.system, alphabet)
        # Checkpoints hold weights and two moments of each, the model folder weights alone; 4 bytes each.
        copies = 4 * (3 * settings.train.keep + 1)
        return StepCost(training_flops(settings), share, copies * count_parameters(settings))
    if step.kind in ("generate", "infill"):
        is_denoiser = step.system.partition("-")[0] in DENOISERS
        count = setup.num_prompts * len(setup.scale.seeds)
        each = _writing_flops(setup, step, alphabet)
        return StepCost(each and each * count, share if is_denoiser else WRITING_SHARE, BYTES_PER_TEXT * count)
    if step.kind == "likelihood":
        return StepCost(_bound_flops(setup, step.system, alphabet), share)
    if step.kind in ("evalppl", "mauve", "arena", "gaps"):
        return StepCost(_scoring_flops(setup, step), share)
    return StepCost()


def positions_of(settings: RunConfig) -> int:
    return settings.train.steps * settings.train.rows * settings.data.row


def training_flops(settings: RunConfig) -> float:
    return flops_per_position(settings.model, settings.model.context) * positions_of(settings)


def _writing_flops(setup: Setup, step: Step, alphabet: Alphabet) -> float | None:
    """Of one text; None for a system whose shape is not known here."""
    name, _, asked = step.system.partition("-")
    if name not in SYSTEMS:
        return None
    scale, model = setup.scale, setup.scale.settings(name, alphabet).model
    prompt, room = scale.prefix, scale.total - scale.prefix
    if step.kind == "infill":
        # Left to right sees the prefix alone.
        prompt = scale.context if name == "ar" else 2 * scale.context
        room = min(2 * scale.longest_gap, model.context - 1 - prompt)
    if name in DENOISERS:
        return diffusion_flops(model, room, steps=int(asked or STEPS), prompt=prompt).flops
    actions = room if name == "ar" else min(ACTIONS_PER_TOKEN * room, model.context - 1 - prompt)
    return flops(model, room, actions=actions, prompt=prompt).flops


def _bound_flops(setup: Setup, system: str, alphabet: Alphabet) -> float | None:
    """One pass over each drawn trajectory, or over each canvas with noise; None where the shape is not known."""
    if system not in SYSTEMS:
        return None
    scale, model = setup.scale, setup.scale.settings(system, alphabet).model
    samples = 1 if system == "ar" else scale.samples
    return flops_per_position(model, model.context) / 3 * setup.num_prompts * samples * scale.total


def _scoring_flops(setup: Setup, step: Step) -> float | None:
    """Every text, the references too, read once, gaps with their suffixes."""
    parameters = EVALUATORS.get(setup.evaluator)
    if parameters is None or (step.name == "arena" and setup.judge != "likelihood"):
        return None
    scale = setup.scale
    is_gaps = step.kind == "gaps"
    size = 2 * scale.context + scale.longest_gap if is_gaps else scale.total
    num_systems = 1 if is_gaps else len(writers(setup))
    count = setup.num_prompts * (1 + num_systems * len(scale.seeds))
    return 2 * parameters * count * size
