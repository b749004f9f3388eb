"""`reviser eval flops`: what writing costs, in the paper's tables and for our own models."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import add_out, print_result
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.config import ModelConfig

DEFAULTS: dict[str, Any] = {
    "tokens": 128,
    "prompt": 35,
    "actions_per_token": 1.25,
    "steps": None,
    "vocabulary": 50257,
}
"""Of the options that say what one of our own models writes; steps: as many as tokens."""


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "flops",
        "multiply-accumulates of writing a text, from shapes and lengths",
        "  reviser eval flops\n"
        "  reviser eval flops --model paper_100m --tokens 145 --prompt 35 --actions-per-token 1.39 --json",
        description="Work out the paper's tables of inference cost from its formulas; or, with --model, what one of "
        "our own models costs, beside left-to-right and diffusion models of the same shape.",
    )
    parser.add_argument("--model", metavar="FOLDER|RECIPE", help="a model folder, or a recipe's shape")
    parser.add_argument("--tokens", type=int, help="new tokens to write (default 128)")
    parser.add_argument("--prompt", type=int, help="tokens of the prompt before them (default 35)")
    parser.add_argument(
        "--actions-per-token", type=float, metavar="X", help="actions a new token takes (default 1.25: a fifth moves)"
    )
    parser.add_argument("--steps", type=int, help="steps of the diffusion model (default: as many as tokens)")
    parser.add_argument("--vocabulary", type=int, help="text tokens of a recipe (default 50257, GPT-2's)")
    add_out(parser)
    parser.set_defaults(run=run_flops)


def run_flops(args: argparse.Namespace) -> int:
    from reviser.evaluation.records import make_result
    from reviser.paper.flops_tables import LENGTH, rows

    if args.model is None:
        _refuse_options(args, DEFAULTS, "needs --model: the paper's tables are for its own lengths")
        found, config = [asdict(row) for row in rows()], {"tokens": LENGTH}
    else:
        found, config = _own_rows(args)
    result = make_result("flops", found, config, unit="1e9 multiply-accumulates; operations are twice as many")
    return print_result(args, result, lambda: _told(found))


def _refuse_options(args: argparse.Namespace, names: dict[str, Any] | list[str], why: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} {why}")


def _own_rows(args: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Three systems of one shape, and the settings they were worked out for."""
    from reviser.config import to_dict
    from reviser.evaluation.metrics.flops import diffusion_flops, flops, left_to_right_flops
    from reviser.paper.flops_tables import Row

    model = _find_model(args)
    given = {name: getattr(args, name) if getattr(args, name) is not None else DEFAULTS[name] for name in DEFAULTS}
    tokens, prompt, actions = given["tokens"], given["prompt"], given["actions_per_token"] * given["tokens"]
    steps = tokens if given["steps"] is None else given["steps"]
    costs = {
        ("left-to-right", f"{tokens} tokens"): left_to_right_flops(model, tokens, prompt=prompt),
        ("Reviser", f"{actions:g} actions, canvas {model.canvas.kind}"): flops(
            model, tokens, actions=actions, prompt=prompt
        ),
        ("diffusion", f"{steps} steps"): diffusion_flops(model, tokens, steps=steps, prompt=prompt),
    }
    baseline = next(iter(costs.values())).macs
    group = f"{args.model}: {tokens} tokens after a prompt of {prompt}"
    found = [
        asdict(Row(group, method, variant, cost.macs / 1e9, cost.macs / baseline))
        | {f"{part}_gmacs": macs / 1e9 for part, macs in asdict(cost).items()}
        for (method, variant), cost in costs.items()
    ]
    config = {"model": to_dict(model), "tokens": tokens, "prompt": prompt, "actions": actions, "steps": steps}
    return found, config


def _find_model(args: argparse.Namespace) -> ModelConfig:
    """The settings of a folder's model, or of a recipe's."""
    from reviser.actions import Alphabet
    from reviser.model.checkpoint import read_config
    from reviser.training.recipes import RECIPES, find_recipe

    if Path(args.model).is_dir():
        _refuse_options(args, ["vocabulary"], f"is for recipes: {args.model} is a folder, whose model has its own")
        return read_config(Path(args.model)).model
    if args.model.replace("-", "_") not in RECIPES:
        raise ConfigError(f"no model folder and no recipe {args.model!r}; recipes are {', '.join(RECIPES)}")
    vocabulary = DEFAULTS["vocabulary"] if args.vocabulary is None else args.vocabulary
    return find_recipe(args.model)(Alphabet(vocabulary, vocabulary - 1)).model


def _told(found: list[dict[str, Any]]) -> str:
    """A table for each group."""
    parts = [key for key in found[0] if key.endswith("_gmacs")]
    tables = []
    for group, rows in groupby(found, key=lambda row: row["group"]):
        names = "".join(f"{name.removesuffix('_gmacs'):>14}" for name in parts)
        lines = [group, f"  {'method':<18}{'variant':<32}{'GMACs':>14}{'ratio':>12}{names}"]
        for row in rows:
            values = "".join(f"{row[name]:>14,.4f}" for name in parts)
            numbers = f"{row['gmacs']:>14,.4f}{row['ratio']:>12,.4f}{values}"
            lines.append(f"  {row['method']:<18}{row['variant']:<32}{numbers}")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)
