"""Named configs: each recipe is a function from an alphabet to the whole config of a run.

    debug       a minute on a CPU, on this package's own source text
    small       the model to ship: about 30 million parameters, cursor window, runs of several jump rates
    ar_small    the same, left to right
    fim_small   the same, left to right, and half of the examples fill a gap: a fill-in-the-middle model
    edit_small  a proofreader as large as small: edits drafts, and continues and infills
    joint_small one model as large as small for every job: edits, fills any number of gaps, continues at length
    revise_small              it goes on learning, from drafts of its own among other pairs
    dagger_edit               edit_small, which also learns from what it does itself
    dagger_small              small with JUMP, DELETE and REPLACE, which also learns from how it fills gaps
    rewrite_small             the same examples for a model that writes the corrected text anew
    paper_100m, paper_300m    every hyper-parameter of the paper's reproducibility section
    ar_100m, ar_300m          the same, left to right
    paper_small               the paper's order and no window, as large as small, otherwise as small
    mdlm_small, sedd_small    diffusion models as large as small, on the same examples
    ours_100m, ours_300m      the paper's size and optimizer; window, mixed runs and gaps of small
    mdlm_100m, mdlm_300m, sedd_100m, sedd_300m    diffusion models as large as those, on the same examples
    ppo_small                 a trained model, for a judge to prefer what it writes

>>> paper_100m(Alphabet(50257, 50256)).model.num_layers
24
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from reviser.actions import Alphabet
from reviser.config import CanvasConfig, ModelConfig
from reviser.data.examples import JobConfig
from reviser.errors import ConfigError
from reviser.training.settings import DaggerConfig, DataConfig, OptimizerConfig, RunConfig, TrainConfig, find_place

Recipe = Callable[[Alphabet], RunConfig]


def debug(alphabet: Alphabet) -> RunConfig:
    """Shows that everything works: tiny, float32, about a minute on two CPU cores."""
    return RunConfig(
        model=ModelConfig(
            num_text=alphabet.num_text, pad=alphabet.pad, num_layers=2, width=96, num_heads=3, ff_width=384,
            context=128, max_length=128, canvas=CanvasConfig(kind="window", slot_width=24),
        ),
        data=DataConfig(
            order="runs:jump=0.05,start=end", row=256, workers=1,
            jobs=JobConfig(prefix=(0, 16), length=(16, 64), gap=(1, 31), suffix=(1, 15)),
        ),
        optimizer=OptimizerConfig(lr=5e-3, min_lr=5e-4, warmup=20),
        train=TrainConfig(
            steps=240, rows=6, log_every=20, eval_every=60, eval_examples=32,
            eval_prefix=16, eval_length=48, sample_every=120, save_every=120,
        ),
    )  # fmt: skip


MIXED_RUNS = (
    "0.25*left-to-right+0.25*runs:jump=0.01,start=end+0.3*runs:jump=0.02,start=end+0.2*runs:jump=0.05,start=end"
)
"""From no revision to much; the model sees in its history which it is, so decoding can choose."""


def small(alphabet: Alphabet) -> RunConfig:
    """About 30 million parameters with a vocabulary of 8,192; seven minutes on an H200."""
    return RunConfig(
        model=ModelConfig(
            num_text=alphabet.num_text, pad=alphabet.pad, num_layers=8, width=512, num_heads=8, ff_width=2048,
            context=384, canvas=CanvasConfig(kind="window"),
        ),
        data=DataConfig(
            order=MIXED_RUNS, row=1024, workers=4,
            jobs=JobConfig(prefix=(0, 64), length=(16, 192), gap=(1, 63), suffix=(1, 63), infill=0.25),
        ),
        optimizer=OptimizerConfig(name="muon", lr=2e-3, min_lr=2e-5, warmup=200, schedule="linear"),
        train=TrainConfig(
            steps=6000, rows=96, eval_every=3000, eval_examples=512, eval_infill=512, sample_every=3000,
            save_every=3000,
        ),
    )  # fmt: skip


def ar_small(alphabet: Alphabet) -> RunConfig:
    """`small` left to right: what its likelihood and its texts are compared with. It can only continue."""
    config = _left_to_right(small(alphabet))
    jobs = replace(config.data.jobs, infill=0.0)
    return replace(config, data=replace(config.data, jobs=jobs), train=replace(config.train, eval_infill=0))


def fim_small(alphabet: Alphabet) -> RunConfig:
    """`small` as a fill-in-the-middle model: it reads both sides of a gap and writes from left to right. Half of the
    examples continue, half fill a gap."""
    config = _left_to_right(small(alphabet))
    return replace(config, data=replace(config.data, jobs=replace(config.data.jobs, infill=0.5)))


ROUNDS = 6
"""Of rollouts, where a recipe has any or `--dagger` asks for them."""
POINTED_RUNS = MIXED_RUNS.replace("start=end", "start=end,by=pointer")
"""The same with JUMPs."""


def edit_small(alphabet: Alphabet) -> RunConfig:
    """A proofreader as large as `small`: most examples correct mistakes, one in five is a pair, the others write."""
    config = small(alphabet)
    model = replace(config.model, operators=("jump", "delete", "replace"), context=512, pointer_ahead=3)
    jobs = replace(config.data.jobs, edit=0.75, pairs=0.2, corrected=0.5, draft=(1, 180))
    train = replace(config.train, eval_edit=512)
    return replace(
        config,
        model=model,
        data=replace(config.data, order=POINTED_RUNS, jobs=jobs),
        train=train,
    )


def joint_small(alphabet: Alphabet) -> RunConfig:
    """One model for every job: most examples are drafts to correct, the others fill gaps or continue, at length.
    Pairs are few, for whoever reads the same ones too often knows them by heart; drafts are up to a page long. Text
    is written from left to right unless the model is told otherwise."""
    config = edit_small(alphabet)
    jobs = replace(
        config.data.jobs, prefix=(0, 128), length=(16, 448), gap=(1, 127), suffix=(1, 127), infill=0.5, gaps=(1, 6),
        sparse=0.1, edit=0.66, pairs=0.02, draft=(1, 400), around=(0, 96), cut_stops=False, learn_given=0.5, told=0.4,
    )  # fmt: skip
    return replace(
        config,
        model=replace(config.model, context=1024, max_length=1024),
        data=replace(config.data, order="left-to-right", jobs=jobs, row=2048),
        train=replace(
            config.train, steps=24000, rows=48, find_mistakes=3.0, eval_every=6000, sample_every=12000,
            save_every=6000,
        ),
    )  # fmt: skip


def revise_small(alphabet: Alphabet) -> RunConfig:
    """`joint_small` as a second stage, from the weights of train.init: two in five examples are pairs, its own drafts
    (`reviser data drafts`) and corrections; the others correct mistakes, continue and infill, so that it forgets
    none of that."""
    config = joint_small(alphabet)
    jobs = replace(config.data.jobs, edit=0.4, pairs=0.4)
    optimizer = replace(config.optimizer, lr=6e-4, min_lr=6e-6, muon_lr=1e-3, warmup=50)
    train = replace(config.train, steps=2000, eval_every=1000, sample_every=1000, save_every=1000)
    return replace(config, data=replace(config.data, jobs=jobs), optimizer=optimizer, train=train)


def dagger_edit(alphabet: Alphabet) -> RunConfig:
    """`edit_small` that learns from own states in the last half of its steps; most useful from a trained model, with
    train.init and dagger.after=0."""
    config = edit_small(alphabet)
    return replace(config, dagger=DaggerConfig(rounds=ROUNDS, after=config.train.steps // 2))


def dagger_small(alphabet: Alphabet) -> RunConfig:
    """`small` with JUMP, DELETE and REPLACE, which learns from own states how to fill short gaps."""
    config = small(alphabet)
    model = replace(config.model, operators=("jump", "delete", "replace"), pointer_ahead=3)
    data = replace(config.data, order=POINTED_RUNS, jobs=replace(config.data.jobs, gap=(1, 15)))
    dagger = DaggerConfig(rounds=ROUNDS, after=config.train.steps // 2, infill=1.0, share=0.25)
    return replace(config, model=model, data=data, dagger=dagger)


def rewrite_small(alphabet: Alphabet) -> RunConfig:
    """The examples of `edit_small` for a model that reads a draft and writes all of it anew, from left to right."""
    config = _left_to_right(edit_small(alphabet))
    jobs = replace(config.data.jobs, rewrites=True, infill=0.0)
    model = replace(config.model, operators=("jump",), pointer_ahead=0)
    train = replace(config.train, eval_infill=0)
    return replace(config, model=model, data=replace(config.data, jobs=jobs), train=train)


def paper_small(alphabet: Alphabet) -> RunConfig:
    """The paper's method beside `small`: a random walk, blind to the canvas; all else as there, the size too."""
    config = _blind(small(alphabet))
    return replace(config, data=replace(config.data, order="random-walk"))


def mdlm_small(alphabet: Alphabet) -> RunConfig:
    """`small` as a masked diffusion model."""
    return _denoising(small(alphabet), "mdlm")


def sedd_small(alphabet: Alphabet) -> RunConfig:
    """`small` as a score entropy diffusion model."""
    return _denoising(small(alphabet), "sedd")


def _denoising(config: RunConfig, family: Literal["mdlm", "sedd"]) -> RunConfig:
    """A denoiser instead, which needs no window and no order."""
    model = config.model
    # How SEDD reads the noise level: 256 waves through 128 units twice, then 6 vectors a layer and 2 at the end.
    condition = 257 * 128 + 129 * 128 + 129 * (6 * model.num_layers + 2) * model.width if family == "sedd" else 0
    return replace(_left_to_right(_blind(config, condition)), family=family)


def _blind(config: RunConfig, extra: int = 0) -> RunConfig:
    """No window, `extra` parameters elsewhere, and an MLP that makes both up to within 1%."""
    units = _window_size(config.model) - extra
    return replace(config, model=replace(_widen(config.model, units), canvas=CanvasConfig()))


def _window_size(model: ModelConfig) -> int:
    """Parameters of a cursor window: its table and its matrix."""
    canvas = model.canvas
    return (model.num_text + 1) * canvas.slot_width + 2 * canvas.window * canvas.slot_width * model.width


def _widen(model: ModelConfig, parameters: int) -> ModelConfig:
    """A model whose MLP has about that many parameters more, or fewer."""
    units = parameters / (2 * model.width * model.num_layers)
    return replace(model, ff_width=model.ff_width + 32 * round(units / 32))


def _paper(model: ModelConfig, lr: float, min_lr: float, rows: int, accumulate: int) -> RunConfig:
    """What both sizes share: AdamW (0.9, 0.95), decay 0.1, 2,000 warm-up steps, dropout 0.1, clip 1, 30B positions.

    The paper pads rows of one example; ours pack many into rows of 4,096 positions, so a step has as many
    positions (16,384 and 32,768) and less padding. The author's code trains over all actions, valid or not, where
    the paper prints a mask: so does this.
    """
    steps = 30_000_000_000 // (rows * 4096)
    return RunConfig(
        model=model,
        data=DataConfig(
            order="random-walk", row=4096, workers=4,
            jobs=JobConfig(prefix=(35, 35), length=(109, 145), from_start=1.0),
        ),
        optimizer=OptimizerConfig(lr=lr, min_lr=min_lr, warmup=2000, beta2=0.95, weight_decay=0.1, clip=1.0),
        train=TrainConfig(
            steps=steps, rows=rows, accumulate=accumulate, masked=False, save_every=5000, eval_every=5000
        ),
    )  # fmt: skip


def paper_100m(alphabet: Alphabet) -> RunConfig:
    """24 layers of 512, context 256; learning rate 1e-4 to 2e-5, 16,384 positions a step."""
    return _paper(_author_model(alphabet, 24, 512, 8, context=256), 1e-4, 2e-5, rows=4, accumulate=1)


def paper_300m(alphabet: Alphabet) -> RunConfig:
    """26 layers of 896, context 512; learning rate 1e-5 to 1e-6, 32,768 positions a step in 4 parts."""
    return _paper(_author_model(alphabet, 26, 896, 14, context=512), 1e-5, 1e-6, rows=8, accumulate=4)


def ar_100m(alphabet: Alphabet) -> RunConfig:
    """`paper_100m` left to right."""
    return _left_to_right(paper_100m(alphabet))


def ar_300m(alphabet: Alphabet) -> RunConfig:
    """`paper_300m` left to right."""
    return _left_to_right(paper_300m(alphabet))


def ours_100m(alphabet: Alphabet) -> RunConfig:
    """`paper_100m` with what `small` has: cursor window, mixed runs, a loss over valid actions, gaps to fill."""
    return _ours(paper_100m(alphabet))


def ours_300m(alphabet: Alphabet) -> RunConfig:
    """`paper_300m` with what `small` has."""
    return _ours(paper_300m(alphabet))


def _ours(config: RunConfig) -> RunConfig:
    """The window's parameters are taken from the MLP, so that the size stays within 1%."""
    model = replace(config.model, canvas=CanvasConfig(kind="window"))
    data = replace(config.data, order=MIXED_RUNS, jobs=replace(config.data.jobs, infill=0.25))
    model = _widen(model, -_window_size(model))
    return replace(config, model=model, data=data, train=replace(config.train, masked=True))


def mdlm_100m(alphabet: Alphabet) -> RunConfig:
    """`ours_100m` as a masked diffusion model."""
    return _denoising(ours_100m(alphabet), "mdlm")


def mdlm_300m(alphabet: Alphabet) -> RunConfig:
    """`ours_300m` as a masked diffusion model."""
    return _denoising(ours_300m(alphabet), "mdlm")


def sedd_100m(alphabet: Alphabet) -> RunConfig:
    """`ours_100m` as a score entropy diffusion model."""
    return _denoising(ours_100m(alphabet), "sedd")


def sedd_300m(alphabet: Alphabet) -> RunConfig:
    """`ours_300m` as a score entropy diffusion model."""
    return _denoising(ours_300m(alphabet), "sedd")


def ppo_small(alphabet: Alphabet) -> RunConfig:
    """Learns from a judge's ranks of what a model, given as train.init, writes itself."""
    recipe: Recipe = find_place("reviser.own_states.ppo_settings:ppo_small")
    return recipe(alphabet)


def _left_to_right(config: RunConfig) -> RunConfig:
    return replace(config, data=replace(config.data, order="left-to-right"))


def _author_model(alphabet: Alphabet, layers: int, width: int, heads: int, context: int) -> ModelConfig:
    return ModelConfig(
        num_text=alphabet.num_text, pad=alphabet.pad, num_layers=layers, width=width, num_heads=heads,
        ff_width=4 * width, context=context, norm="layer", qk_norm=False, activation="gelu", dropout=0.1,
    )  # fmt: skip


RECIPES: dict[str, Recipe] = {
    recipe.__name__: recipe
    for recipe in (
        debug, small, ar_small, fim_small, edit_small, joint_small, revise_small, dagger_edit, dagger_small,
        rewrite_small, paper_100m, paper_300m, ar_100m, ar_300m, paper_small, mdlm_small, sedd_small,
        ours_100m, ours_300m, mdlm_100m, mdlm_300m, sedd_100m, sedd_300m, ppo_small,
    )
}  # fmt: skip


def find_recipe(name: str) -> Recipe:
    """The recipe of a name, written with _ or -."""
    if name.replace("-", "_") not in RECIPES:
        raise ConfigError(f"no recipe {name!r}; recipes are {', '.join(RECIPES)}")
    return RECIPES[name.replace("-", "_")]
