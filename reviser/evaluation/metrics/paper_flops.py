"""The paper's tables of inference cost, from its formulas: nothing in, a row for every method and variant out.

Four tables: `summary` is the main text's (tab:prior_art_summary_main), which prints ratios alone; `diffusion-100m`,
`diffusion-large` and `refinement` are the appendix's (app:diff_family_table_100m, app:diff_family_table_big,
app:prior_art_table). Every printed number follows from the formulas. Where the text leaves more than one reading,
these give the printed digits:

- Reviser's n / (1 - p_move) actions are not rounded: the 191.04 that is printed would give 23.9000, not 23.9006. Its
  head has the 50,000 tokens of the others; moves and STOP are not counted.
- The footnote's and both tables' ranges for Reviser are p_move = 0.20 to 0.33; LevT's range in the summary is from
  early exit with 5 rounds to none with 10, Diffusion-LM's from 200 to 2,000 steps without clamping.
- The balanced Insertion Transformer takes passes at 1, 2, 4, ..., n tokens: log2(n) + 1 of them, although the summary
  says log2(n). It scores one slot more than there are tokens.
- "F_transformer^full" of Dream and LLaDA is the gated one with shared keys, in their own shape; shared keys make the
  projections cheaper and the attention not. LLaDA's ratio is to LLaMA3-8B, whose shape and vocabulary are others.
- Dream and LLaDA score masked positions alone, (T + 1) / 2 times the text in T steps; SEDD, MDLM and D3PM score all.
- SDLM's pass s stands behind (s - 1) k tokens, the first behind none, and pays for D positions though it keeps k. The
  printed ratio 2 is 2.00004.
- LevT's lengths 0.8 n and 0.4 n are not rounded, Mask-Predict's masked counts are (downwards).

>>> [(row.variant, round(row.gmacs, 4), round(row.ratio, 4)) for row in rows() if row.method == "MDLM"]
[('T=1000', 16088.8259, 1009.3993)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from reviser.evaluation.metrics.flops import Shape

LENGTH = 128
SHARED = Shape(num_layers=12, width=768, ff_width=4 * 768, vocabulary=50_000)
MAX_PLACEHOLDERS = 16
NUM_FERTILITIES = 50
MOVE_SHARES = (0.20, 0.28, 0.33)

QWEN_32B = Shape(64, 5120, 27_648, 152_064, kv_width=8 * 128, num_mlp=3)
QWEN_7B = Shape(28, 3584, 18_944, 152_064, kv_width=4 * 128, num_mlp=3)
LLAMA_8B = Shape(32, 4096, 14_336, 128_256, kv_width=8 * 128, num_mlp=3)
LLADA_8B = Shape(32, 4096, 12_288, 126_464, kv_width=32 * 128, num_mlp=3)

Variant = tuple[str, str, float]
"""Method, variant, multiply-accumulates."""


@dataclass(frozen=True, slots=True)
class CostRow:
    """One method and variant of one table."""

    group: str
    method: str
    variant: str
    gmacs: float
    """Thousands of millions of multiply-accumulates to write the text."""
    ratio: float
    """To those of the left-to-right model that the table compares with."""


def rows(n: int = LENGTH) -> list[CostRow]:
    """All four tables for texts of n tokens; the paper's are for 128."""
    shared, reviser, refinement, diffusion = autoregressive(SHARED, n), _reviser(n), _refinement(n), _diffusion(n)
    with_range = [each for each in refinement if each[0] != "LevT" or each[1] in ("EE (f=0.5), R=5", "no EE, R=10")]
    unclamped = [each for each in diffusion if each[0] == "Diffusion-LM" and each[1].endswith("gamma=0")]
    baseline = ("AR", "baseline", shared)
    return [
        *_table("summary", shared, [baseline, *reviser, *with_range, *unclamped]),
        *_table("diffusion-100m", shared, [("AR (100M)", "baseline", shared), *reviser, *diffusion]),
        *_large(n),
        *_table("refinement", shared, [baseline, *reviser, *refinement]),
    ]


def _table(group: str, baseline: float, variants: Iterable[Variant]) -> list[CostRow]:
    return [CostRow(group, method, variant, macs / 1e9, macs / baseline) for method, variant, macs in variants]


def _reviser(n: float) -> list[Variant]:
    return [("Reviser", f"p_move={share:.2f}", autoregressive(SHARED, n / (1 - share))) for share in MOVE_SHARES]


def _refinement(n: int) -> list[Variant]:
    exits = (("no EE", 1.0), ("EE (f=0.5)", 0.5))
    edits = [
        ("LevT", f"{name}, R={rounds}", levenshtein(n, rounds, depth)) for name, depth in exits for rounds in (5, 10)
    ]
    doubling = [2**power for power in range(math.floor(math.log2(n)) + 1)]
    return [
        *edits,
        ("InsT", "balanced-tree", insertion(doubling)),
        ("InsT", "serial", insertion(range(1, n + 1))),
        ("NAT", "one-shot", one_shot(n)),
        ("CMLM", "Mask-Predict, T=10", mask_predict(n, 10)),
    ]


def _diffusion(n: int) -> list[Variant]:
    return [
        ("SEDD", "T=32", full_diffusion(n, 32)),
        ("SEDD", "T=2048", full_diffusion(n, 2048)),
        ("MDLM", "T=1000", full_diffusion(n, 1000)),
        ("D3PM", "T=1000", full_diffusion(n, 1000)),
        ("Diffusion-LM", "T=200, gamma=0", clamped_diffusion(n, 200, 0)),
        ("Diffusion-LM", "T=200, gamma=1", clamped_diffusion(n, 200, 1)),
        ("Diffusion-LM", "T=2000, gamma=0", clamped_diffusion(n, 2000, 0)),
    ]


def _large(n: int) -> list[CostRow]:
    """Three comparisons, each with a left-to-right model of about the same size."""
    dream = [("Dream-7B", f"T={steps}", masked_diffusion(QWEN_7B, n, steps)) for steps in (10, 20)]
    llada = [
        ("LLaDA-8B", "T=256", masked_diffusion(LLADA_8B, n, 256)),
        ("LLaDA-8B", "semi-AR, b=32, T=16", block_diffusion(LLADA_8B, n, 32, 16)),
    ]
    sdlm = [("SDLM-32B-D4", "D=4, k=2", sequential_diffusion(QWEN_32B, n, 4, 2))]
    comparisons = (("Qwen2.5-32B", QWEN_32B, sdlm), ("Qwen2.5-7B", QWEN_7B, dream), ("LLaMA3-8B", LLAMA_8B, llada))
    found: list[CostRow] = []
    for name, shape, others in comparisons:
        baseline = autoregressive(shape, n)
        found += _table("diffusion-large", baseline, [(f"AR ({name})", "baseline", baseline), *others])
    return found


def autoregressive(shape: Shape, n: float) -> float:
    """n steps with cached keys, a head each; Reviser is this with as many steps as it takes actions."""
    return shape.causal(n) + shape.head(n)


def full_diffusion(n: float, steps: int) -> float:
    """Every step passes the whole text and scores all of it (SEDD, MDLM, D3PM)."""
    return steps * (SHARED.full(n) + SHARED.head(n))


def clamped_diffusion(n: float, steps: int, share: float) -> float:
    """Diffusion-LM rounds to tokens at the end, and at a share of the steps before it."""
    return steps * SHARED.full(n) + (1 + share * (steps - 1)) * SHARED.head(n)


def masked_diffusion(shape: Shape, n: float, steps: int) -> float:
    """Every step passes the whole text and scores what is still masked, linearly less (Dream, LLaDA)."""
    return steps * shape.full(n) + (steps + 1) / 2 * shape.head(n)


def block_diffusion(shape: Shape, n: int, size: int, steps: int) -> float:
    """LLaDA block by block: all text so far passes, without a cache, and the block's masked positions are scored."""
    lengths = [min(number * size, n) for number in range(1, math.ceil(n / size) + 1)]
    return sum(steps * shape.full(length) + (steps + 1) / 2 * shape.head(size) for length in lengths)


def sequential_diffusion(shape: Shape, n: int, size: int, kept: int) -> float:
    """SDLM proposes `size` tokens a pass behind cached ones, and keeps `kept` on average."""
    return sum(shape.behind(size, number * kept) + shape.head(size) for number in range(math.ceil(n / kept)))


def levenshtein(n: float, rounds: int, depth: float) -> float:
    """LevT deletes, places and fills in each round; the first two leave after a share `depth` of the layers."""
    before, filled, d = 0.8 * n, 0.4 * n, SHARED.width
    heads = before * d * 2 + (before + 1) * 2 * d * (MAX_PLACEHOLDERS + 1) + SHARED.head(filled)
    return rounds * (2 * depth * SHARED.full(before) + SHARED.full(n) + heads)


def insertion(lengths: Iterable[int]) -> float:
    """The Insertion Transformer passes the text at each of these lengths and scores its slots."""
    return sum(SHARED.full(length) + SHARED.head(length + 1) for length in lengths)


def one_shot(n: float) -> float:
    """NAT: an encoder with fertilities, a decoder that looks at it, all tokens at once."""
    fertilities = n * SHARED.width * NUM_FERTILITIES
    return SHARED.full(n) + fertilities + SHARED.full(n) + SHARED.cross(n, n) + SHARED.head(n)


def masked_counts(n: int, rounds: int) -> list[int]:
    """How many tokens Mask-Predict masks in each round: all, then linearly fewer."""
    return [n * (rounds - number) // rounds for number in range(rounds)]


def mask_predict(n: int, rounds: int) -> float:
    """CMLM: an encoder once, then rounds of a decoder that looks at it and scores what is masked."""
    num_masked = sum(masked_counts(n, rounds))
    return SHARED.full(n) + rounds * (SHARED.full(n) + SHARED.cross(n, n)) + SHARED.head(num_masked)
