"""`reviser serve`: a model behind HTTP."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command
from reviser.cli.write import add_model, waiting, without_collector
from reviser.errors import MissingPackageError
from reviser.serving.serve_config import TOKEN_VARIABLE, ServeConfig, read_token

if TYPE_CHECKING:
    from reviser.decoding.writer import Writer

LIMITS = {
    "rows": "texts that are decoded at once with one way of sampling",
    "concurrency": "requests that are worked on at once",
    "queue": "requests that may wait behind those; more are answered with 429",
    "max_body_bytes": "largest body of a request; larger ones are answered with 413",
    "max_characters": "longest text in a request; longer ones are answered with 413",
    "max_texts": "most texts that one request may ask for",
    "timeout_s": "seconds that a request may take",
    "grace_s": "seconds that requests have to finish when the server is told to stop",
    "max_connections": "open connections; more are answered with 503 and closed",
    "head_timeout_s": "seconds for the headers of a request to come",
    "body_timeout_s": "seconds for the body of a request to come; later ones are answered with 408",
    "send_timeout_s": "seconds for a client to take 16 KiB of its answer, or the rest of it",
}
"""Settings that are numbers, and what they are."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "serve",
        "serve a model over HTTP",
        "  reviser serve\n  REVISER_TOKEN=secret reviser serve --model runs/edits --port 8081",
        description="Serve a model to clients of OpenAI's completions, of llama.cpp's infill and of LanguageTool, "
        "and show its trajectories as they are written. One process, one model, one running batch. Only this machine "
        "can reach it unless --host says otherwise. Stop it with Ctrl-C: what has begun is finished first.",
        has_json=False,
    )
    add_model(parser)
    default = ServeConfig()
    parser.add_argument("--host", default=default.host, help=f"address to listen on (default {default.host})")
    parser.add_argument(
        "--port", type=int, default=default.port, help=f"port, 0 for any that is free (default {default.port})"
    )
    group = parser.add_argument_group("safety")
    group.add_argument(
        "--token",
        help=f"what clients must send as Authorization: Bearer TOKEN (default: the variable {TOKEN_VARIABLE}, which "
        "other users of this machine cannot see, or none)",
    )
    group.add_argument(
        "--allow-host", dest="allow_hosts", metavar="NAME", action="append", default=[],
        help="a name by which clients may reach the server, beside --host and this machine's own; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--cors", metavar="ORIGIN", action="append", default=[],
        help="a site whose pages may use the server, such as https://example.org; repeatable (default: none)",
    )  # fmt: skip
    group.add_argument("--log-text", action="store_true", help="log requests with their text (default: never)")
    limits = parser.add_argument_group("limits")
    for name, text in LIMITS.items():
        value = getattr(default, name)
        option = f"--{name.replace('_', '-')}"
        limits.add_argument(option, type=type(value), default=value, metavar="N", help=f"{text} (default {value})")
    parser.set_defaults(run=run_serve)


def run_serve(args: argparse.Namespace) -> int:
    given = {each.name: getattr(args, each.name) for each in fields(ServeConfig)}
    lists = {name: tuple(given[name]) for name in ("allow_hosts", "cors")}
    config = ServeConfig(**given | lists | {"token": read_token(args.token)})
    try:
        from reviser.serving.server import listen, serve
    except ModuleNotFoundError as error:
        name = (error.name or "fastapi").partition(".")[0].replace("_", "-")
        raise MissingPackageError(name, "reviser serve", "pip install 'reviser[serve]'") from None
    opened = listen(config)
    try:
        writer = _open(args)
    except BaseException:
        opened.close()
        raise
    serve(writer, config, opened)
    return 0


def _open(args: argparse.Namespace) -> Writer:
    with waiting("loading (slow the very first time)"), without_collector():
        from reviser.decoding.arguments import check_device
        from reviser.decoding.writer import Writer

        check_device(args.device, "--device")
        writer = Writer.from_pretrained(args.model, args.device, weights=args.weights)
        # The first use loads the kernels.
        writer.generate("", max_actions=2)
        return writer
