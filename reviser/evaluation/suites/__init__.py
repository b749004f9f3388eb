"""Suites: each measures one thing and is a command of `reviser eval`.

| suite | question | module |
|---|---|---|
| `Continuation`, `Infill` | what do systems write? | `writing` |
| `EvalPpl`, `Mauve`, `Gaps`, `Metrics` | how good is it? | `scoring` |
| `Arena` | which of two texts does a judge prefer? | `preference` |
| `Trajectories`, `Frontier` | how did they edit, and what did it cost? | `revision` |
| `Redrafting` | does a model make its own drafts better? | `redrafting` |
| `Likelihood` | how probable is real text to a model? | `probability` |
| `Flops` | what does writing cost? | `flop_counts` |
| `Corrections` | how well do systems correct texts? | `correcting` |
"""

from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.correcting import Corrections
from reviser.evaluation.suites.flop_counts import Flops
from reviser.evaluation.suites.preference import Arena
from reviser.evaluation.suites.probability import Likelihood
from reviser.evaluation.suites.redrafting import Redrafting
from reviser.evaluation.suites.revision import Frontier, Trajectories
from reviser.evaluation.suites.scoring import EvalPpl, Gaps, Mauve, Metrics
from reviser.evaluation.suites.writing import Continuation, Infill

__all__ = [
    "Suite", "Listener", "SILENT", "option", "SUITES",
    "Continuation", "Infill", "EvalPpl", "Mauve", "Gaps", "Metrics", "Arena", "Trajectories", "Likelihood",
    "Frontier", "Flops", "Corrections", "Redrafting",
]  # fmt: skip

SUITES: tuple[type[Suite], ...] = (
    Continuation, Infill, EvalPpl, Mauve, Gaps, Metrics, Arena, Trajectories, Likelihood, Frontier, Flops,
    Corrections, Redrafting,
)  # fmt: skip
"""In the order in which a person uses them."""
