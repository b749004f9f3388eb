"""`reviser eval arena`: have a judge compare what systems wrote, or score judgments again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import DEVICE, DTYPES, PROMPTS, add_out, check_positive, print_result
from reviser.cli.progress_bar import show_progress
from reviser.errors import ConfigError, DataError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.evaluation.evaluator import Evaluator
    from reviser.evaluation.judges.arena import Judge, JudgmentFile, Pair


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "arena",
        "which of two texts a judge prefers: win rates, position bias, strengths",
        "  reviser eval arena ours.jsonl ar.jsonl --judge likelihood --model gpt2-large --judgments verdicts.jsonl\n"
        "  reviser eval arena a.jsonl b.jsonl c.jsonl --judge http --url http://localhost:8000/v1 --model judge "
        "--both-orders --judgments verdicts.jsonl\n"
        "  reviser eval arena --judgments verdicts.jsonl --json",
        description="Show a judge the prompt and two systems' texts for it, in a random order, and count who wins. "
        "Judgments are kept as JSON lines: a broken-off run goes on, no pair is asked twice, and without --judge the "
        "file is scored as it is. Intervals are Wilson's, of 95%, over prompts.",
    )
    parser.add_argument(
        "generations",
        nargs="*",
        metavar="GENERATIONS",
        help="files that `reviser eval` wrote, of two systems or more",
    )
    parser.add_argument("--judgments", required=True, metavar="FILE", help="where judgments are kept and scored from")
    parser.add_argument("--judge", choices=("http", "critic", "likelihood"), help="who judges what is not judged yet")
    parser.add_argument(
        "--model", help="the endpoint's name of it; elsewhere a short name, folder, GGUF file or hub id"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws who is shown first (default 0)")
    parser.add_argument("--both-orders", action="store_true", help="judge each pair twice, swapped")
    parser.add_argument("--n", type=int, help=PROMPTS)
    parser.add_argument(
        "--empty", choices=("refuse", "lose"), default="refuse", help="what an empty text does (default refuse)"
    )
    add_out(parser)
    _add_asking(parser)
    parser.set_defaults(run=run_arena)


def _add_asking(parser: ArgumentParser) -> None:
    both = parser.add_argument_group("judges that are asked (http, critic)")
    both.add_argument("--template", metavar="FILE", help="the message, with {request}, {first} and {second} in it")
    both.add_argument("--reply-tokens", type=int, help="the longest reply (default 512 for http, 16 for critic)")
    http = parser.add_argument_group("http: an endpoint that speaks OpenAI's chat protocol")
    http.add_argument("--url", help="e.g. https://api.openai.com/v1 or http://localhost:8000/v1")
    http.add_argument("--key-env", metavar="NAME", help="the variable with the key (default OPENAI_API_KEY, if set)")
    http.add_argument("--concurrency", type=int, default=4, help="requests at once (default 4)")
    http.add_argument("--timeout", type=float, default=60.0, metavar="S", help="for one request (default 60 s)")
    http.add_argument("--retries", type=int, default=6, help="tries after the first (default 6)")
    http.add_argument("--body", default="{}", metavar="JSON", help="more fields of the request; null takes one away")
    local = parser.add_argument_group("critic and likelihood: a transformers causal model on this machine")
    local.add_argument("--device", default="auto", help=DEVICE)
    local.add_argument("--dtype", choices=DTYPES, default="float32", help="default float32")
    local.add_argument("--batch", type=int, default=8, help="pairs at once, for critic (default 8)")
    local.add_argument("--margin", type=float, default=0.0, help="bits per byte within which likelihood ties")


def run_arena(args: argparse.Namespace) -> int:
    from reviser.evaluation.judges.arena import read_judgments
    from reviser.evaluation.metrics.win_rates import score
    from reviser.evaluation.records import hash_files, make_result
    from reviser.files import hash_file

    if bool(args.generations) != (args.judge is not None):
        raise ConfigError(
            "generations and --judge go together; to score judgments again, give --judgments and neither of them"
        )
    about: dict[str, Any] = {}
    pairs = None
    if args.judge is not None:
        pairs = _pairs(args)
        judge = _open_judge(args)
        if not _judge(args.judgments, judge, pairs):
            print(f"stopped; {args.judgments} keeps what was judged, run the command again to go on", file=sys.stderr)
            return 130
        about = {"evaluator": {"name": args.model, "sha256": judge.sha256}, "seed": args.seed}
    judgments = read_judgments(args.judgments)
    if pairs is not None:
        # The file may hold more, of an earlier run with more prompts or systems.
        asked = {key for pair in pairs for key in (pair.key, pair.swapped.key)}
        judgments = [each for each in judgments if each.key in asked]
    if not judgments:
        raise DataError(f"{args.judgments} holds no judgment; judge some generations with --judge")
    config = {
        "judge": judgments[0].judge,
        "judgments": args.judgments,
        "judgments_sha256": hash_file(Path(args.judgments)),
        "generations": hash_files(args.generations),
        "interval": "Wilson, 95%, over prompts",
    }
    scores = score(judgments)
    result = make_result("arena", scores.pop("rows"), config, **scores, **about)
    return print_result(args, result, lambda: _told(result))


def _pairs(args: argparse.Namespace) -> list[Pair]:
    from reviser.evaluation.judges.arena import make_pairs, refuse_empty
    from reviser.evaluation.records import read_generations

    check_positive(args, "n")
    generations = [each for path in args.generations for each in read_generations(path)]
    pairs = make_pairs(generations, args.seed, args.both_orders, args.n)
    if args.empty == "refuse":
        refuse_empty(pairs)
    return pairs


def _judge(judgments: str, judge: Judge, pairs: list[Pair]) -> bool:
    """Judge what is missing; whether nothing is missing any more."""
    from reviser.evaluation.judges.arena import JudgmentFile, decide_empty
    from reviser.files import locked

    path = Path(judgments)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with locked(path):
            file = JudgmentFile(path, judge.name)
            for judgment in decide_empty(file.missing(pairs), judge.name):
                file.add(judgment)
            return _hold(judge, file.missing(pairs), file)
    except BlockingIOError:
        raise ConfigError(
            f"{path}: another run writes judgments to it; wait for that one or give a new file"
        ) from None


def _hold(judge: Judge, missing: list[Pair], file: JudgmentFile) -> bool:
    from reviser.evaluation.judges.arena import hold

    def tell_stop() -> None:
        print("finishing what the judge was asked; Ctrl-C again leaves at once", file=sys.stderr)

    with show_progress("arena") as bar:
        return hold(judge, missing, file, lambda done: bar.show(done, len(missing), f"{done} judgments"), tell_stop)


def _open_judge(args: argparse.Namespace) -> Judge:
    if args.model is None:
        raise ConfigError(f"--judge {args.judge} needs --model")
    openers = {"http": _open_chat, "critic": _open_critic, "likelihood": _open_likelihood}
    return openers[args.judge](args)


def _open_chat(args: argparse.Namespace) -> Judge:
    from reviser.evaluation.judges.endpoint import Endpoint, read_key
    from reviser.evaluation.judges.models import CHAT_TEMPLATE, ChatJudge, read_template

    if args.url is None:
        raise ConfigError("--judge http needs --url, the address of a chat endpoint such as http://localhost:8000/v1")
    if args.timeout <= 0 or args.retries < 0:
        raise ConfigError(f"--timeout {args.timeout:g} and --retries {args.retries} must be above 0 and at least 0")
    endpoint = Endpoint(
        args.url, args.model, read_key(args.key_env), args.timeout, args.retries, 1.0, args.reply_tokens or 512,
        _read_body(args.body),
    )  # fmt: skip
    return ChatJudge(endpoint, args.concurrency, read_template(args.template) if args.template else CHAT_TEMPLATE)


def _read_body(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ConfigError(f"--body {text} is no JSON object; write e.g. --body '{{\"temperature\": null}}'")
    return body


def _open_critic(args: argparse.Namespace) -> Judge:
    from reviser.evaluation.judges.models import CRITIC_TEMPLATE, CriticJudge, read_template

    template = read_template(args.template) if args.template else CRITIC_TEMPLATE
    return CriticJudge(_load(args), args.batch, args.reply_tokens or 16, template)


def _open_likelihood(args: argparse.Namespace) -> Judge:
    from reviser.evaluation.judges.models import EvaluatorScorer, LikelihoodJudge

    return LikelihoodJudge(EvaluatorScorer(_load(args)), args.margin)


def _load(args: argparse.Namespace) -> Evaluator:
    from reviser.evaluation.evaluators import load
    from reviser.training.distributed import join_team

    return load(args.model, "causal", str(join_team(args.device).device), args.dtype)


def _told(result: dict[str, Any]) -> str:
    lines = [f"judge: {result['config']['judge']}", ""]
    width = max(len("opponent"), *(len(each["system"]) for each in result["strengths"])) + 2
    lines.append(f"{'system':<{width}}{'opponent':<{width}}{'won':>7}{'tied':>7}{'lost':>7}{'win rate':>10}   95%")
    for row in result["rows"]:
        counts = f"{row['wins']:>7}{row['ties']:>7}{row['losses']:>7}"
        lines.append(f"{row['system']:<{width}}{row['opponent']:<{width}}{counts}{_share(row['win_rate']):>10}")
    lines += ["", f"{'system':<{width}}{'strength':>10}{'error':>9}{'group':>7}"]
    for each in result["strengths"]:
        error = "-" if each["error"] is None else f"{each['error']:.3f}"
        lines.append(f"{each['system']:<{width}}{each['strength']:>+10.3f}{error:>9}{each['group']:>7}")
    if result["strengths"][-1]["group"]:
        lines.append("strengths of two groups do not compare: they never met, or one took every point")
    lines += [f"{one} and {other} never met" for one, other in result["never_met"]]
    lines += ["", f"the text shown first won {_share(result['position_bias']).strip()}"]
    if result["agreement"] is not None:
        lines.append(f"both orders agree in {_share(result['agreement']).strip()}")
    if result["empty"]:
        lines.append(f"decided unasked, by an empty text: {result['empty']}")
    if result["failed"] or result["unanswered"]:
        lines.append(f"not counted: {result['failed']} failed, {result['unanswered']} unanswered")
    return "\n".join(lines)


def _share(share: dict[str, Any] | None) -> str:
    if share is None:
        return "nothing"
    return f"{share['value']:>10.1%}   {share['low']:.1%} to {share['high']:.1%} ({share['n']} prompts)"
