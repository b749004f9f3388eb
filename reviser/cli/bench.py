"""`reviser bench`: how fast the parts are, on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from reviser.cli.bench_serve import add_check, add_serve
from reviser.cli.shared.command import add_command, add_out, print_result
from reviser.errors import ConfigError
from reviser.evaluation.suites.writing import DEVICE

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.training.settings import RunConfig


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("bench", help="measure speed on this machine")
    kinds = parser.add_subparsers(title="benchmarks", required=True, metavar="WHAT")
    _add_trajectories(kinds)
    _add_train(kinds)
    _add_decode(kinds)
    add_serve(kinds)
    add_check(kinds)


def _add_trajectories(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "trajectories",
        "drawing, log q, replay and cursor windows",
        "  reviser bench trajectories\n  reviser bench trajectories --threads 2 --json",
        description="Draw trajectories with log q, replay them with a cursor window of 4+4 tokens and compare "
        "the final canvas with the target; actions per second for each order.",
    )
    parser.add_argument("--n", type=int, default=145, help="tokens per target (default 145)")
    parser.add_argument("--threads", type=int, default=1, help="number of threads (default 1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per order (default 2)")
    add_out(parser)
    parser.set_defaults(run=run_trajectories)


def run_trajectories(args: argparse.Namespace) -> int:
    from reviser.bench.draw_speed import measure
    from reviser.reports.results import make_result

    row = measure(num_tokens=args.n, threads=args.threads, seconds=args.seconds)
    return print_result(args, make_result("trajectory_speed", [row], {"seconds": args.seconds}, sys.argv[1:]))


def _add_train(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "train",
        "training steps of a recipe, beside a plain GPT loop of its shape",
        "  reviser bench train paper_100m --json\n"
        "  reviser bench train small --set model.canvas.kind=pool --no-plain",
        description="Time a recipe's training steps on random text, trajectories and packing included, and a plain "
        "compiled GPT loop of the same shape in the same run.",
    )
    parser.add_argument("recipe", help="recipe whose shape and data are used")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one setting; repeatable")
    parser.add_argument("--vocabulary", type=int, default=50257, help="text tokens (default 50257, GPT-2's)")
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default 20)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before the clock starts (default 5)")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain GPT loop")
    parser.add_argument("--profile", action="store_true", help="print where a step's time goes instead")
    add_out(parser)
    parser.set_defaults(run=run_train)


def run_train(args: argparse.Namespace) -> int:
    import torch

    from reviser.actions import Alphabet
    from reviser.bench.train_speed import profile_recipe
    from reviser.config import override, to_dict
    from reviser.reports.results import make_result
    from reviser.training.recipes import find_recipe

    if args.steps < 1 or args.warmup < 0:
        raise ConfigError(f"--steps {args.steps} and --warmup {args.warmup} must be at least 1 and 0")
    settings = override(find_recipe(args.recipe)(Alphabet(args.vocabulary, args.vocabulary - 1)), args.set)
    if args.profile:
        print(profile_recipe(settings, args.device))
        return 0
    row = _measure_training(args, settings)
    result = make_result("train_speed", [row], to_dict(settings), sys.argv[1:], torch=torch.__version__)
    return print_result(args, result)


def _measure_training(args: argparse.Namespace, settings: RunConfig) -> dict[str, Any]:
    from reviser.bench.train_speed import measure_plain, measure_recipe, spell_orders

    positions, context = settings.train.rows * settings.data.row, settings.model.context
    row: dict[str, Any] = {
        "recipe": args.recipe,
        "context": context,
        "row": settings.data.row,
        "positions_per_step": positions * settings.train.accumulate,
        "dropout": settings.model.dropout,
        "ours": measure_recipe(settings, args.steps, args.warmup, args.device),
    }
    if settings.model.has_jumps:
        row["moving"] = measure_recipe(spell_orders(settings), args.steps, args.warmup, args.device)
        row["step_over_moving"] = row["ours"]["step_s"] / row["moving"]["step_s"]
    if not args.no_plain:
        row["plain"] = measure_plain(settings.model, positions, context, args.steps, args.warmup, args.device)
        row["ratio"] = row["ours"]["positions_per_s"] / row["plain"]["positions_per_s"]
    return row


def _add_decode(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "decode",
        "the engine beside a bare left-to-right step and transformers",
        "  reviser bench decode\n  reviser bench decode --batch 1,64,256 --device cuda --dtype bfloat16 --json",
        description="Decode 35-token prompts by 128 actions with random weights of a recipe's shape: the engine, "
        "bare left-to-right decoding of the same trunk, and a transformers GPT-2 of its shape, in one run; on a CPU "
        "with each kind of step: torch's, and numba's in float32 and int8.",
    )
    parser.add_argument("--recipe", default="paper_100m", help="recipe whose shape is used (default paper_100m)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one setting; repeatable")
    parser.add_argument("--vocabulary", type=int, default=50257, help="text tokens (default 50257, GPT-2's)")
    parser.add_argument("--batch", default="1", help="batch sizes, comma-separated (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="precision of all three")
    parser.add_argument("--new", type=int, default=128, help="actions or tokens to write (default 128)")
    parser.add_argument("--no-transformers", action="store_true", help="leave transformers out")
    parser.add_argument("--static", action="store_true", help="also transformers' compiled static cache at batch 1")
    parser.add_argument("--profile", action="store_true", help="print where the time goes at the first batch instead")
    add_out(parser)
    parser.set_defaults(run=run_decode)


def run_decode(args: argparse.Namespace) -> int:
    import torch

    from reviser.actions import Alphabet
    from reviser.bench.decode_speed import measure, profile_decoding
    from reviser.config import override
    from reviser.reports.results import make_result
    from reviser.training.distributed import join_team
    from reviser.training.recipes import find_recipe

    try:
        batches = [int(each) for each in args.batch.split(",")]
    except ValueError:
        raise ConfigError(f"--batch {args.batch} is not a list of numbers; write 1,64,256") from None
    if args.new < 2:
        raise ConfigError(f"--new {args.new} must be at least 2")
    if min(batches) < 1:
        raise ConfigError(f"--batch {args.batch}: a batch has at least one row; write 1,64,256")
    device = str(join_team(args.device).device)
    settings = override(find_recipe(args.recipe)(Alphabet(args.vocabulary, args.vocabulary - 1)), args.set)
    dtype, has_hf = getattr(torch, args.dtype), not args.no_transformers
    if args.profile:
        print(profile_decoding(settings.model, batches[0], device, dtype))
        return 0
    config = measure(settings.model, batches, device, dtype, has_hf, args.static, args.new)
    rows = config.pop("batches")
    config |= {"recipe": args.recipe, "set": args.set, "device": device, "threads": torch.get_num_threads()}
    return print_result(args, make_result("decode", rows, config, sys.argv[1:], torch=torch.__version__))
