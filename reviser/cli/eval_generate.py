"""`reviser eval continuation` and `infill`: have systems write into prompts and keep what they wrote."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import DEVICE, PROMPTS, add_out, add_system, check_positive, print_result
from reviser.cli.progress_bar import count_up
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.evaluation.records import GenerationFile, Prompt
    from reviser.evaluation.systems import Budget, System
    from reviser.tokenizer import Tokenizer

SEEDS = "123,124,125"
AT_ONCE = {"cpu": 64, "cuda": 256}
"""Generations between two writes to the file, by device."""


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    _add_continuation(suites)
    _add_infill(suites)


def _add_continuation(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "continuation",
        "the paper's benchmark: continue the beginnings of documents",
        "  reviser eval continuation c4.jsonl --system ours=runs/mine/model --generations ours.jsonl\n"
        "  reviser eval continuation c4.jsonl --cut --n 200 --system ar=runs/ar/model --system gpt2=hf:gpt2 "
        "--generations both.jsonl --out results/both.json",
        description="Take documents of 144 to 216 GPT-2 tokens, give each system the first 35 and let it write "
        "toward 180 in all, by 256 actions at most, once a seed. Generations are kept as JSON lines for the other "
        "suites; a file that exists is gone on with.",
    )
    _add_shared(parser)
    parser.add_argument("--prefix", type=int, default=35, help="tokens given (default 35)")
    parser.add_argument("--total", type=int, default=180, help="tokens in all (default 180)")
    parser.add_argument("--cut", action="store_true", help="also take the beginnings of longer documents")
    parser.set_defaults(run=run_continuation)


def _add_infill(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "infill",
        "fill gaps in documents, their length not given",
        "  reviser eval infill heldout.jsonl --system ours=runs/mine/model --generations gaps.jsonl\n"
        "  reviser eval infill texts/ --n 50 --gap 8,16 --system ar=runs/ar/model --generations gaps.jsonl --json",
        description="Cut a gap of 8 to 48 tokens out of each document and have each system fill it. A left-to-right "
        "model sees the prefix alone. Generations are kept as JSON lines for the other suites; a file that exists is "
        "gone on with.",
    )
    _add_shared(parser)
    parser.add_argument("--context", type=int, default=48, help="tokens shown on either side (default 48)")
    parser.add_argument("--gap", default="8,48", help="shortest and longest gap in tokens (default 8,48)")
    parser.set_defaults(run=run_infill)


def _add_shared(parser: ArgumentParser) -> None:
    parser.add_argument("texts", nargs="+", metavar="TEXTS", help="files or folders of documents (jsonl, txt, ...)")
    add_system(parser)
    parser.add_argument(
        "--generations", required=True, metavar="FILE", help="where generations are kept, as JSON lines"
    )
    parser.add_argument("--n", type=int, help=PROMPTS)
    parser.add_argument("--seeds", default=SEEDS, help=f"comma-separated (default {SEEDS})")
    parser.add_argument("--ruler", default="gpt2", help="the tokenizer that counts lengths (default gpt2)")
    parser.add_argument("--temperature", type=float, default=0.9, help="default 0.9")
    parser.add_argument("--top-k", type=int, default=50, help="default 50; 0 is all")
    parser.add_argument("--device", default="auto", help=DEVICE)
    add_out(parser)


def run_continuation(args: argparse.Namespace) -> int:
    from reviser.evaluation.prompts import Lengths, continuation_prompts, read_named
    from reviser.tokenizer import load

    lengths, ruler = Lengths(prefix=args.prefix, total=args.total), load(args.ruler)
    prompts = continuation_prompts(read_named(args.texts), ruler, lengths, args.cut)
    config = {"prefix": args.prefix, "total": args.total, "cut": args.cut}
    return _run(args, prompts, config, args.total - args.prefix, ruler)


def run_infill(args: argparse.Namespace) -> int:
    from reviser.evaluation.prompts import infill_prompts, read_named
    from reviser.tokenizer import load

    low, high = _numbers("--gap", args.gap, count=2)
    prompts = infill_prompts(read_named(args.texts), load(args.ruler), args.context, (low, high))
    # Room for twice the longest gap, the same for all, or a gap's length would be given away.
    room = 2 * max(len(prompt.reference) for prompt in prompts)
    return _run(args, prompts, {"context": args.context, "gap": [low, high], "characters": room}, room)


def _run(
    args: argparse.Namespace, prompts: list[Prompt], config: dict[str, Any], room: int, ruler: Tokenizer | None = None
) -> int:
    """Have all systems write; the room is counted in the ruler's tokens, or in characters."""
    from reviser.evaluation.records import GenerationFile, hash_files, make_result
    from reviser.evaluation.systems import Budget

    check_positive(args, "n")
    seeds, prompts = _numbers("--seeds", args.seeds), prompts[: args.n]
    budget = Budget(room) if ruler is None else Budget(room, lambda text: len(ruler.encode(text)))
    file, rows = GenerationFile(args.generations), []
    for spec in args.system:
        rows.append(_have_written(args, spec, budget, prompts, seeds, file))
    config |= {"n": len(prompts), "seeds": seeds, "ruler": args.ruler, "temperature": args.temperature}
    about = {"texts": list(args.texts), "generations": hash_files([args.generations])}
    result = make_result("generations", rows, config | {"top_k": args.top_k}, **about)
    return print_result(args, result, lambda: _table(rows))


def _have_written(
    args: argparse.Namespace, spec: str, budget: Budget, prompts: list[Prompt], seeds: list[int], file: GenerationFile
) -> dict[str, Any]:
    """One system's row, after it wrote what the file lacks."""
    from reviser.decoding.sampling import Sampling
    from reviser.evaluation.systems import open_system
    from reviser.training.distributed import join_team

    sampling = Sampling(temperature=args.temperature, top_k=args.top_k)
    device = join_team(args.device).device
    system = open_system(spec, sampling, budget, str(device))
    maker = _name_maker(spec.partition("=")[2], [args.temperature, args.top_k, budget.size])
    _refuse_others(system.name, maker, prompts, file)
    _generate(system, maker, prompts, seeds, file, AT_ONCE[device.type])
    return {"system": system.name, "model": spec.partition("=")[2], "maker": maker} | _summary(
        system.name, prompts, seeds, file
    )


def _name_maker(model: str, settings: list[Any]) -> str:
    """What a text depends on besides prompt and seed, as a short hash."""
    from reviser.evaluation.evaluator import hash_weights
    from reviser.model.folder import find

    path, *changes = model.removeprefix("hf:").removeprefix("published:").split(",")
    weights = model
    if Path(path).is_dir():
        weights = hash_weights(find(path) if model.startswith(path) else Path(path))
    return hashlib.sha256(json.dumps([weights, *settings, *changes]).encode()).hexdigest()[:16]


def _refuse_others(name: str, maker: str, prompts: list[Prompt], file: GenerationFile) -> None:
    """A file may be gone on with where its texts came about as the new ones will."""
    known = {prompt.id: prompt for prompt in prompts}
    # Whoever reads the file takes its first prompts; later ones are left over from a larger --n.
    first = list(dict.fromkeys(each.prompt_id for each in file.generations if each.system == name))[: len(prompts)]
    if others := [each for each in first if each not in known]:
        raise ConfigError(f"{file.path}: its texts of system {name} continue other prompts, such as {others[0]}; "
                          "give another file")  # fmt: skip
    for each in file.generations:
        if each.system == name and each.maker != maker:
            raise ConfigError(
                f"{file.path}: its texts of system {name} were written with other weights or settings; "
                "give another file, or call the system something else"
            )
        asked = known.get(each.prompt_id)
        if asked and (asked.prefix, asked.reference, asked.suffix) != (each.prefix, each.reference, each.suffix):
            raise ConfigError(f"{file.path}: its prompt {each.prompt_id} was cut otherwise; give another file")


def _generate(
    system: System, maker: str, prompts: list[Prompt], seeds: list[int], file: GenerationFile, at_once: int
) -> None:
    """Write what is missing, a part at a time, so that little is lost when a run breaks off."""
    with count_up(system.name, len(prompts) * len(seeds)) as advance:
        for seed in seeds:
            missing = [prompt for prompt in prompts if (system.name, prompt.id, seed) not in file.keys]
            advance(len(prompts) - len(missing))
            for start in range(0, len(missing), at_once):
                part = missing[start : start + at_once]
                file.add(replace(each, maker=maker) for each in system.generate(part, seed))
                advance(len(part))


def _summary(name: str, prompts: list[Prompt], seeds: list[int], file: GenerationFile) -> dict[str, Any]:
    keys = {(name, prompt.id, seed) for prompt in prompts for seed in seeds}
    own = [each for each in file.generations if each.key in keys]
    return {
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
