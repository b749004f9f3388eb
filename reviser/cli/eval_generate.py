"""`reviser eval continuation` and `infill`: have systems write into prompts and keep what they wrote."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from reviser.cli.leaf import add_leaf
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.evaluation.records import GenerationFile, Prompt
    from reviser.evaluation.systems import System

SEEDS = "123,124,125"
AT_ONCE = 64
"""Generations between two writes to the file."""


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_continuation(suites)
    _add_infill(suites)


def _add_continuation(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_leaf(
        suites,
        "continuation",
        "the paper's benchmark: continue the beginnings of documents",
        "  reviser eval continuation c4.jsonl --system ours=runs/mine/model --generations ours.jsonl\n"
        "  reviser eval continuation c4.jsonl --cut --n 200 --system ar=runs/ar/model --system gpt2=hf:gpt2 "
        "--generations both.jsonl --json",
        description="Take documents of 144 to 216 GPT-2 tokens, give each system the first 35 and let it write "
        "toward 180 in all, once a seed. Generations are kept as JSON lines for the other suites; a file that "
        "exists is gone on with.",
    )
    _add_shared(parser)
    parser.add_argument("--prefix", type=int, default=35, help="tokens given (default 35)")
    parser.add_argument("--total", type=int, default=180, help="tokens in all (default 180)")
    parser.add_argument("--cut", action="store_true", help="also take the beginnings of longer documents")
    parser.set_defaults(run=run_continuation)


def _add_infill(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_leaf(
        suites,
        "infill",
        "fill gaps in documents, their length not given",
        "  reviser eval infill heldout.jsonl --system ours=runs/mine/model --generations gaps.jsonl\n"
        "  reviser eval infill texts/ --n 50 --gap 8,16 --system ar=runs/ar/model --generations gaps.jsonl --json",
        description="Cut a gap of 8 to 48 tokens out of each document and have each system fill it. A left-to-right "
        "model sees the prefix alone.",
    )
    _add_shared(parser)
    parser.add_argument("--context", type=int, default=48, help="tokens shown on either side (default 48)")
    parser.add_argument("--gap", default="8,48", help="shortest and longest gap in tokens (default 8,48)")
    parser.set_defaults(run=run_infill)


def _add_shared(parser: ArgumentParser) -> None:
    parser.add_argument("texts", nargs="+", metavar="TEXTS", help="files or folders of documents (jsonl, txt, ...)")
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=MODEL",
        help="a model folder, or hf:MODEL; repeatable",
    )
    parser.add_argument(
        "--generations", required=True, metavar="FILE", help="where generations are kept, as JSON lines"
    )
    parser.add_argument("--n", type=int, help="so many prompts at most (default all)")
    parser.add_argument("--seeds", default=SEEDS, help=f"comma-separated (default {SEEDS})")
    parser.add_argument("--ruler", default="gpt2", help="the tokenizer that counts lengths (default gpt2)")
    parser.add_argument("--temperature", type=float, default=0.9, help="default 0.9")
    parser.add_argument("--top-k", type=int, default=50, help="default 50; 0 is all")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")


def run_continuation(args: argparse.Namespace) -> int:
    from reviser.evaluation.prompts import Lengths, continuation_prompts, read_named
    from reviser.tokenizer import load

    lengths = Lengths(prefix=args.prefix, total=args.total)
    prompts = continuation_prompts(read_named(args.texts), load(args.ruler), lengths, args.cut)
    return _run(args, prompts, {"prefix": args.prefix, "total": args.total, "cut": args.cut})


def run_infill(args: argparse.Namespace) -> int:
    from reviser.evaluation.prompts import infill_prompts, read_named
    from reviser.tokenizer import load

    low, high = _numbers("--gap", args.gap, count=2)
    prompts = infill_prompts(read_named(args.texts), load(args.ruler), args.context, (low, high))
    # Room for twice the longest gap, the same for all, or a gap's length would be given away.
    room = 2 * max(len(prompt.reference) for prompt in prompts)
    return _run(args, prompts, {"context": args.context, "gap": [low, high], "characters": room}, room)


def _run(args: argparse.Namespace, prompts: list[Prompt], config: dict[str, Any], room: int | None = None) -> int:
    from reviser.decoding.sampling import Sampling
    from reviser.evaluation.records import GenerationFile, make_result
    from reviser.evaluation.systems import Budget, open_system
    from reviser.training.distributed import join_team

    if args.n is not None and args.n < 1:
        raise ConfigError(f"--n {args.n} must be at least 1")
    seeds, prompts = _numbers("--seeds", args.seeds), prompts[: args.n]
    sampling = Sampling(temperature=args.temperature, top_k=args.top_k)
    device = str(join_team(args.device).device)
    file, rows = GenerationFile(args.generations), []
    for spec in args.system:
        system = open_system(spec, sampling, Budget(room), device)
        _generate(system, prompts, seeds, file)
        rows.append(_summary(system.name, prompts, file))
    config |= {"n": len(prompts), "seeds": seeds, "ruler": args.ruler, "temperature": args.temperature}
    result = make_result("generations", rows, config | {"top_k": args.top_k}, generations=args.generations)
    print(json.dumps(result) if args.json else _table(rows))
    return 0


def _generate(system: System, prompts: list[Prompt], seeds: list[int], file: GenerationFile) -> None:
    """Write what is missing, a part at a time, so that little is lost when a run breaks off."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task(system.name, total=len(prompts) * len(seeds))
        for seed in seeds:
            missing = [prompt for prompt in prompts if (system.name, prompt.id, seed) not in file.keys]
            progress.advance(task, len(prompts) - len(missing))
            for start in range(0, len(missing), AT_ONCE):
                part = missing[start : start + AT_ONCE]
                file.add(system.generate(part, seed))
                progress.advance(task, len(part))


def _summary(name: str, prompts: list[Prompt], file: GenerationFile) -> dict[str, Any]:
    ids = {prompt.id for prompt in prompts}
    own = [each for each in file.generations if each.system == name and each.prompt_id in ids]
    return {
        "system": name,
        "generations": len(own),
        "empty": sum(not each.text.strip() for each in own),
        "stopped_share": sum(each.is_stopped for each in own) / len(own),
        "mean_characters": sum(len(each.text) for each in own) / len(own),
        "mean_reference_characters": sum(len(each.reference) for each in own) / len(own),
        "mean_actions": sum(each.num_actions for each in own) / len(own),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'system':<16}{'texts':>8}{'empty':>8}{'stopped':>9}{'characters':>12}{'reference':>11}{'actions':>9}"]
    for row in rows:
        lines.append(
            f"{row['system']:<16}{row['generations']:>8}{row['empty']:>8}{row['stopped_share']:>9.1%}"
            f"{row['mean_characters']:>12.1f}{row['mean_reference_characters']:>11.1f}{row['mean_actions']:>9.1f}"
        )
    return "\n".join(lines)


def _numbers(name: str, text: str, count: int | None = None) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (count is not None and len(numbers) != count):
        raise ConfigError(f"{name} {text} is no list of {count or 'whole'} numbers; write e.g. {name} 8,48")
    return numbers
