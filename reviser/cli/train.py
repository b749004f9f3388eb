"""`reviser train`: a recipe, with some settings changed, trained into a run folder."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from reviser.actions import Alphabet
from reviser.cli.shared.command import add_command
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.training.runs import Run

SOME_ALPHABET = Alphabet(num_text=257, pad=256)
"""To look at a recipe whose tokenizer is not known yet."""


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "train",
        "train a model by a recipe",
        "  reviser train debug\n"
        "  reviser train small --data data/ --out runs/mine --set optimizer.lr=1e-3 --set train.steps=2000\n"
        "  reviser train --resume runs/mine\n"
        "  reviser train --ppo --data data/ --set train.init=runs/mine --set ppo.judge=likelihood:reviser:runs/ar\n"
        "  torchrun --nnodes 1:4 --max-restarts 9 --rdzv-backend c10d --rdzv-endpoint node0:29400 --nproc-per-node 8 "
        "-m reviser train small --data data/ --out runs/mine --or-resume",
        description="Train a model by a recipe (debug, small, ar_small, paper_100m, ...; see docs/training.md for "
        "all) into a run folder. Ctrl-C saves a checkpoint first. Start it with torchrun to use several processes.",
    )
    parser.add_argument("recipe", nargs="?", help="name of the recipe; not needed with --resume")
    parser.add_argument("--data", help="a data folder; without it, debug trains on this package's own source text")
    parser.add_argument("--out", help="the run folder to make (default runs/RECIPE)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one setting; repeatable")
    parser.add_argument(
        "--dagger",
        action="store_true",
        help="also learn from own states, with any recipe that edits (as --set dagger.rounds=6; docs/own-states.md)",
    )
    parser.add_argument("--resume", metavar="RUN", help="continue a run folder from its newest checkpoint")
    parser.add_argument(
        "--or-resume",
        action="store_true",
        help="resume the run if --out holds one of the same settings; for torchrun, which starts the command again "
        "when a machine has died",
    )
    parser.add_argument("--steps", type=int, help="stop after this many steps; the recipe's schedule does not change")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")
    parser.add_argument(
        "--ppo",
        action="store_true",
        help="learn from a judge's ranks of the model's own texts; the recipe is ppo_small unless another is given",
    )
    parser.add_argument("--show", action="store_true", help="print the resolved config as JSON and stop")
    parser.set_defaults(run=run_train)


def run_train(args: argparse.Namespace) -> int:
    if args.ppo:
        _choose_ppo(args)
    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give either a recipe or --resume RUN")
    if args.resume and args.out:
        raise ConfigError(f"{args.resume} is resumed where it is; drop --out {args.out}")
    if args.resume and args.or_resume:
        raise ConfigError("--resume and --or-resume do not go together; drop one")
    if args.steps is not None and args.steps < 1:
        raise ConfigError(f"--steps {args.steps} must be at least 1")
    if args.dagger:
        args.set = [_switch_dagger(args), *args.set]
    if args.show:
        return _show(args)
    from reviser.training.api import train

    run = train(
        args.recipe,
        data=args.data,
        out=args.out,
        resume=args.resume,
        settings=args.set,
        steps=args.steps,
        device=args.device,
        progress="rich",
        handle_signals=True,
        or_resume=args.or_resume,
    )
    if os.environ.get("RANK", "0") == "0":
        _conclude(run, args.json)
    return 130 if run.was_stopped and not run.is_done else 0


def _choose_ppo(args: argparse.Namespace) -> None:
    """The recipe with a section `ppo`."""
    if args.resume:
        raise ConfigError(f"{args.resume} is resumed as it began; drop --ppo")
    if args.dagger:
        raise ConfigError("--ppo and --dagger learn from own states in two ways; choose one")
    from reviser.own_states.ppo_settings import ppo_recipe

    args.recipe = ppo_recipe(args.recipe)


def _switch_dagger(args: argparse.Namespace) -> str:
    """The setting that `--dagger` stands for; what says so already is an error."""
    from reviser.training.recipes import ROUNDS, find_recipe

    if args.resume:
        raise ConfigError("--dagger is for a run that begins; drop it, a run that is resumed learns as it began")
    if find_recipe(args.recipe)(SOME_ALPHABET).dagger.rounds:
        raise ConfigError(f"{args.recipe} learns from own states already; drop --dagger")
    if any(each.startswith("dagger.rounds=") for each in args.set):
        raise ConfigError("--set dagger.rounds says how often the model acts; drop --dagger")
    return f"dagger.rounds={ROUNDS}"


def _show(args: argparse.Namespace) -> int:
    from reviser.config import to_dict
    from reviser.training.api import resolve

    settings = resolve(args.recipe, data=args.data, resume=args.resume, settings=args.set)
    print(json.dumps(to_dict(settings), indent=1))
    return 0


def _conclude(run: Run, as_json: bool) -> None:
    if as_json:
        result: dict[str, object] = {"run": str(run.folder), "step": run.step, "is_done": run.is_done}
        for job, bound in run.bounds.items():
            result |= bound.metrics(job)
        print(json.dumps(result))
    elif run.is_done:
        print(f"done; the model is in {run.folder}/model, its samples in {run.folder}/samples")
    if not run.is_done:
        print(f"saved at step {run.step}; resume with: reviser train --resume {run.folder}", file=sys.stderr)
