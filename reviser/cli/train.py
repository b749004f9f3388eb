"""`reviser train`: a recipe, changed here and there, trained into a run folder."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.cli.command import add_command
from reviser.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.actions import Alphabet
    from reviser.data.shards import Shards
    from reviser.training.distributed import Team
    from reviser.training.heldout import Bound
    from reviser.training.loop import Trainer
    from reviser.training.runs import Run
    from reviser.training.settings import RunConfig

OWN_SOURCE_TOKENIZER = "bytes"


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "train",
        "train a model by a recipe",
        "  reviser train debug\n"
        "  reviser train small --data data/ --out runs/mine --set optimizer.lr=1e-3 --set train.steps=2000\n"
        "  reviser train --resume runs/mine",
        description="Train a model by a recipe (debug, small, ar_small, paper_100m, ...; docs/training.md has all) "
        "into a run folder. Ctrl-C saves first. Start it with torchrun to use several processes.",
    )
    parser.add_argument("recipe", nargs="?", help="which recipe; not needed with --resume")
    parser.add_argument("--data", help="a data folder; without it, debug trains on this package's own source text")
    parser.add_argument("--out", help="the run folder to make (default runs/RECIPE)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one setting; repeatable")
    parser.add_argument("--resume", metavar="RUN", help="continue a run folder from its newest checkpoint")
    parser.add_argument("--steps", type=int, help="stop after this many steps; the schedule stays that of the recipe")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")
    parser.add_argument("--show", action="store_true", help="print the resolved config as JSON and stop")
    parser.set_defaults(run=run_train)


def run_train(args: argparse.Namespace) -> int:
    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give either a recipe or --resume RUN")
    if args.steps is not None and args.steps < 1:
        raise ConfigError(f"--steps {args.steps} must be at least 1")
    if args.show:
        return _show(args)
    from reviser.training.distributed import join_team, leave_team

    team = join_team(args.device)
    try:
        with ExitStack() as held:
            trainer = _resume(args, team, held) if args.resume else _start(args, team, held)
            bounds = trainer.train(args.steps)
            return _conclude(args, trainer, bounds)
    finally:
        leave_team()


def _settings(args: argparse.Namespace, data: str) -> RunConfig:
    """The recipe as it is asked for, for the tokenizer of a data folder."""
    from reviser.data.shards import read_header
    from reviser.tokenizer import load

    read_header(data)
    return _changed(args, load(data).alphabet)


def _changed(args: argparse.Namespace, alphabet: Alphabet) -> RunConfig:
    from reviser.config import override
    from reviser.training.recipes import find_recipe

    return override(find_recipe(args.recipe)(alphabet), args.set)


def _show(args: argparse.Namespace) -> int:
    from reviser.config import override, to_dict
    from reviser.tokenizer import load
    from reviser.training.runs import Run

    if args.resume:
        settings = override(Run.open(args.resume)[1], args.set)
    elif _is_own_source(args):
        settings = _changed(args, load(OWN_SOURCE_TOKENIZER).alphabet)
    else:
        settings = _settings(args, args.data)
    print(json.dumps(to_dict(settings), indent=1))
    return 0


def _is_own_source(args: argparse.Namespace) -> bool:
    """Whether to train on this package's own source text: debug does where no data folder is given."""
    from reviser.training.recipes import find_recipe

    find_recipe(args.recipe)
    if not args.data and args.recipe != "debug":
        raise ConfigError(
            f"{args.recipe} needs text to train on; make a folder with reviser data prepare, give it as --data"
        )
    return not args.data


def _data_folder(args: argparse.Namespace) -> str:
    """The data folder asked for, or a new one of this package's own source text."""
    own = Path(_run_folder(args)).parent / "own-source"
    return str(prepare_own_source(own) if _is_own_source(args) else args.data)


def _run_folder(args: argparse.Namespace) -> str:
    return str(args.resume or args.out or f"runs/{args.recipe.replace('-', '_')}")


def prepare_own_source(out: Path) -> Path:
    """A data folder of this package's definitions, each a document: text that is there on every machine."""
    from reviser.data.corpus import prepare
    from reviser.tokenizer import load

    texts = [path.read_text("utf8") for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    lines = [json.dumps({"text": part}) for text in texts for part in text.split("\n\n\n")]
    source = out / "source.jsonl"
    try:
        out.mkdir(parents=True, exist_ok=True)
        source.write_text("\n".join(lines) + "\n", "utf8")
    except OSError as error:
        raise ConfigError(f"cannot write {source}: {error.strerror}; choose another --out") from None
    folder = out / f"data-{hashlib.sha256(source.read_bytes()).hexdigest()[:8]}"
    prepare([str(source)], folder, load(OWN_SOURCE_TOKENIZER), holdout=0.1, workers=1)
    return folder


def _open_data(data: str, settings: RunConfig, team: Team) -> tuple[Shards, Shards]:
    """Training and held-out documents, their files compared with their checksums."""
    from reviser.data.shards import Shards
    from reviser.model.checkpoint import check_tokenizer

    splits = Shards.open(data, "train"), Shards.open(data, "heldout")
    check_tokenizer(settings.model, splits[0].tokenizer)
    if team.is_first:
        for shards in splits:
            shards.verify()
    return splits


def _start(args: argparse.Namespace, team: Team, held: ExitStack) -> Trainer:
    from reviser.data.examples import Slots
    from reviser.diffusion.trainer import trainer_of
    from reviser.training.runs import Run

    out = _run_folder(args)
    if team.is_first:
        Run(out).check_free()
    data = team.share(_data_folder(args) if team.is_first else "")
    settings = _settings(args, data)
    shards, heldout = _open_data(data, settings, team)
    trainer = trainer_of(settings)(settings, Slots.of(shards, settings.data.jobs), team, None, heldout)
    trainer.begin()
    if team.is_first:
        # Last, so that a setting that cannot be used leaves no folder behind.
        trainer.run = Run.create(out, settings, str(Path(data).absolute()))
        held.enter_context(trainer.run.owned())
    _say(team, f"run {out}: {_describe(settings, shards)}")
    return trainer


def _resume(args: argparse.Namespace, team: Team, held: ExitStack) -> Trainer:
    from reviser.config import override
    from reviser.data.examples import Slots
    from reviser.diffusion.trainer import trainer_of
    from reviser.training.runs import Run

    run, settings, data = Run.open(args.resume)
    settings, data = override(settings, args.set), args.data or data
    _own(run, team, held)
    saved = run.load()
    shards, heldout = _open_data(data, settings, team)
    slots = Slots.of(shards, settings.data.jobs)
    trainer = trainer_of(settings)(settings, slots, team, run if team.is_first else None, heldout)
    trainer.restore(saved)
    if team.is_first:
        run.rewind_metrics(trainer.step)
        run.log(f"continued from step {trainer.step} on {team.world} process(es)")
        if args.set:
            run.change(settings, args.set)
    _say(team, f"run {args.resume}: continuing from step {trainer.step}; {_describe(settings, shards)}")
    return trainer


def _own(run: Run, team: Team, held: ExitStack) -> None:
    """Keep other processes off a run folder; where the first of this run's cannot, all refuse."""
    problem = ""
    if team.is_first:
        try:
            held.enter_context(run.owned())
        except CheckpointError as error:
            problem = str(error)
    problem = team.share(problem)
    if problem:
        raise CheckpointError(problem)


def _describe(settings: RunConfig, shards: Shards) -> str:
    from reviser.diffusion.trainer import count_parameters

    kind = f"order {settings.data.order}" if settings.family == "reviser" else settings.family
    return f"{count_parameters(settings):,} parameters, {kind}, {shards.num_tokens:,} tokens of text"


def _say(team: Team, line: str) -> None:
    if team.is_first:
        print(line, file=sys.stderr)


def _conclude(args: argparse.Namespace, trainer: Trainer, bounds: dict[str, Bound]) -> int:
    folder = _run_folder(args)
    is_done = trainer.step >= trainer.settings.train.steps
    if is_done:
        trainer.finish()
    if trainer.team.is_first and args.json:
        result: dict[str, object] = {"run": folder, "step": trainer.step, "is_done": is_done}
        for job, bound in bounds.items():
            result |= bound.metrics(job)
        print(json.dumps(result))
    elif trainer.team.is_first and is_done:
        print(f"done; the model is in {folder}/model, its samples in {folder}/samples")
    if not is_done:
        _say(trainer.team, f"saved at step {trainer.step}; go on with: reviser train --resume {folder}")
    return 130 if trainer.stop_signal and not is_done else 0
