"""FLOPs: what writing costs, in the paper's tables and for our own models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.reports.results import make_result

if TYPE_CHECKING:
    from reviser.config import ModelConfig

OWN = ("tokens", "prompt", "actions_per_token", "steps", "vocabulary")
"""Options that say what one of our own models writes."""
TOKENS, PROMPT, ACTIONS_PER_TOKEN, VOCABULARY = 128, 35, 1.25, 50257
UNIT = "1e9 multiply-accumulates; operations are twice as many"


@dataclass(frozen=True, kw_only=True)
class Flops(Suite):
    name: ClassVar[str] = "flops"
    summary: ClassVar[str] = "multiply-accumulates of writing a text, from shapes and lengths"
    examples: ClassVar[str] = (
        "  reviser eval flops\n"
        "  reviser eval flops --model paper_100m --tokens 145 --prompt 35 --actions-per-token 1.39 --json"
    )
    description: ClassVar[str] = (
        "Compute the paper's tables of inference cost from its formulas or, with --model, the cost of one of our own "
        "models beside left-to-right and diffusion models of the same shape."
    )

    model: str | None = option(
        None, metavar="FOLDER|RECIPE", help="a model folder, shipped, or a recipe for its shape"
    )
    tokens: int | None = option(None, help=f"new tokens to write (default: {TOKENS})")
    prompt: int | None = option(None, help=f"tokens of the prompt before them (default: {PROMPT})")
    actions_per_token: float | None = option(
        None, metavar="X", help=f"actions per new token (default: {ACTIONS_PER_TOKEN}, a fifth of them moves)"
    )
    steps: int | None = option(None, help="steps of the diffusion model (default: one per token)")
    vocabulary: int | None = option(None, help=f"text tokens of a recipe (default: {VOCABULARY}, GPT-2's)")

    def check(self) -> None:
        if self.model is None:
            self._refuse(OWN, "needs --model: the paper's tables are for its own lengths")

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ConfigError(f"--{name.replace('_', '-')} {why}")

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        from reviser.evaluation.metrics.paper_flops import LENGTH, rows

        if self.model is None:
            found, config = [asdict(row) for row in rows()], {"tokens": LENGTH}
        else:
            found, config = self._own_rows()
        return make_result("flops", found, config, self.words, unit=UNIT)

    def _own_rows(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Three systems of one shape, and the settings they were worked out for."""
        from reviser.config import to_dict
        from reviser.evaluation.metrics.flops import diffusion_flops, flops, left_to_right_flops
        from reviser.evaluation.metrics.paper_flops import CostRow

        model = self._find_model()
        tokens, prompt = (
            default if given is None else given for given, default in ((self.tokens, TOKENS), (self.prompt, PROMPT))
        )
        rate = ACTIONS_PER_TOKEN if self.actions_per_token is None else self.actions_per_token
        actions, steps = rate * tokens, tokens if self.steps is None else self.steps
        costs = {
            ("left-to-right", f"{tokens} tokens"): left_to_right_flops(model, tokens, prompt=prompt),
            ("Reviser", f"{actions:g} actions, canvas {model.canvas.kind}"): flops(
                model, tokens, actions=actions, prompt=prompt
            ),
            ("diffusion", f"{steps} steps"): diffusion_flops(model, tokens, steps=steps, prompt=prompt),
        }
        baseline = next(iter(costs.values())).macs
        group = f"{self.model}: {tokens} tokens after a prompt of {prompt}"
        found = [
            asdict(CostRow(group, method, variant, cost.macs / 1e9, cost.macs / baseline))
            | {f"{part}_gmacs": macs / 1e9 for part, macs in asdict(cost).items()}
            for (method, variant), cost in costs.items()
        ]
        config = {"model": to_dict(model), "tokens": tokens, "prompt": prompt, "actions": actions, "steps": steps}
        return found, config

    def _find_model(self) -> ModelConfig:
        """The settings of a folder's model, or of a recipe's."""
        from reviser.actions import Alphabet
        from reviser.model.checkpoint import find, read_config
        from reviser.training.recipes import RECIPES, find_recipe

        model = str(self.model)
        if Path(model).is_dir() or model == "shipped":
            self._refuse(("vocabulary",), f"is for recipes: {model} is a folder, whose model has its own")
            return read_config(find(model)).model
        if model.replace("-", "_") not in RECIPES:
            raise ConfigError(f"no model folder and no recipe {model!r}; recipes are {', '.join(RECIPES)}")
        vocabulary = VOCABULARY if self.vocabulary is None else self.vocabulary
        return find_recipe(model)(Alphabet(vocabulary, vocabulary - 1)).model
