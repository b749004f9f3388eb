"""Language models that write by editing.

| you want to | call |
|---|---|
| write with a model | `load()` gives a `Writer`: `generate`, `infill`, `edit`, `stream` |
| share one | `push("my-model", "me/mine")`, `pull("me/mine", "my-model")` |
| train one | `train("small", data="data/mine", out="runs/mine")` gives a `Run` |
| measure systems | `evaluate({"ours": writer, "theirs": system}, prompts, metrics=[...])` gives `Results` |
| add your own | `register_order`, `register_metric`, `register_canvas`, `register_judge`, `load_plugin` |

Nothing heavy is imported until it is used. docs/python.md has examples of all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.decoding.writer import Text, Writer, load
    from reviser.errors import ReviserError
    from reviser.evaluation.generations import Generation, Prompt
    from reviser.evaluation.judges.registered_judges import register_judge
    from reviser.evaluation.measures import Measure
    from reviser.evaluation.measuring import Results, evaluate
    from reviser.evaluation.metrics.registered import register_metric
    from reviser.hub.pulling import pull
    from reviser.hub.pushing import push
    from reviser.model.canvas_kinds import register_canvas
    from reviser.orders.registry import register_order
    from reviser.plugins import load_plugin
    from reviser.proofreading.edits import Edit
    from reviser.proofreading.proofread import Edited
    from reviser.training.api import train
    from reviser.training.runs import Run

__all__ = [
    "__version__",
    "load", "Writer", "Text", "Edited", "Edit", "Sampling",
    "push", "pull",
    "train", "Run",
    "evaluate", "Results", "Prompt", "Generation", "Measure",
    "register_order", "register_metric", "register_canvas", "register_judge", "load_plugin",
    "ReviserError",
]  # fmt: skip

_PLACES = {
    "load": "decoding.writer",
    "Writer": "decoding.writer",
    "Text": "decoding.writer",
    "Edited": "proofreading.proofread",
    "Edit": "proofreading.edits",
    "Sampling": "decoding.presets",
    "push": "hub.pushing",
    "pull": "hub.pulling",
    "train": "training.api",
    "Run": "training.runs",
    "evaluate": "evaluation.measuring",
    "Results": "evaluation.measuring",
    "Prompt": "evaluation.generations",
    "Generation": "evaluation.generations",
    "Measure": "evaluation.measures",
    "register_order": "orders.registry",
    "register_metric": "evaluation.metrics.registered",
    "register_canvas": "model.canvas_kinds",
    "register_judge": "evaluation.judges.registered_judges",
    "load_plugin": "plugins",
    "ReviserError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'reviser' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"reviser.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
