"""The arena: a judge compares what systems wrote, or earlier judgments are scored again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from reviser.errors import ConfigError, DataError
from reviser.evaluation.judges.registered_judges import JUDGES, OWN, ScoringJudge
from reviser.evaluation.suites.base import SILENT, Listener, Suite, option
from reviser.evaluation.suites.scoring import DTYPES
from reviser.evaluation.suites.writing import DEVICE, PROMPTS
from reviser.files import hash_file
from reviser.reports.results import hash_files, make_result

if TYPE_CHECKING:
    from reviser.evaluation.evaluator import Evaluator
    from reviser.evaluation.judges.arena import Judge, Pair

ASKED = "judges that are asked (http, critic)"
HTTP = "http: an endpoint that speaks OpenAI's chat protocol"
LOCAL = "critic and likelihood: a transformers causal model on this machine"


@dataclass(frozen=True, kw_only=True)
class Arena(Suite):
    name: ClassVar[str] = "arena"
    summary: ClassVar[str] = "which of two texts a judge prefers: win rates, position bias, strengths"
    examples: ClassVar[str] = (
        "  reviser eval arena ours.jsonl ar.jsonl --judge likelihood --model smollm2 --judgments verdicts.jsonl\n"
        "  reviser eval arena a.jsonl b.jsonl c.jsonl --judge http --url http://localhost:8000/v1 --model judge "
        "--both-orders --judgments verdicts.jsonl\n"
        "  reviser eval arena --judgments verdicts.jsonl --json"
    )
    description: ClassVar[str] = (
        "Show a judge the prompt and two systems' texts for it, in a random order, and count who wins. Judgments are "
        "kept as JSON lines: an interrupted run is resumed, no pair is judged twice, and without --judge the "
        "existing judgments are scored. Intervals are 95% Wilson intervals over prompts."
    )

    generations: tuple[str, ...] = option(
        (), positional=True, metavar="GENERATIONS", help="files that `reviser eval` wrote, of two systems or more"
    )
    judgments: str = option(metavar="FILE", help="file that keeps the judgments")
    judge: str | None = option(
        None,
        metavar="NAME",
        help="judge of the pairs not judged yet: http, critic, likelihood, or one you registered",
    )
    model: str | None = option(
        None, help="its name at the endpoint; for other judges a short name, folder, GGUF file or hub id"
    )
    seed: int = option(0, help="random seed for which text is shown first (default: 0)")
    both_orders: bool = option(False, help="judge each pair twice, swapped")
    n: int | None = option(None, help=PROMPTS)
    empty: str = option(
        "refuse", choices=("refuse", "lose"), help="refuse empty texts, or count them as losses (default: refuse)"
    )
    template: str | None = option(
        None, metavar="FILE", group=ASKED, help="the message to the judge, with {request}, {first} and {second} in it"
    )
    reply_tokens: int | None = option(
        None, group=ASKED, help="maximum tokens of a reply (default: 512 for http, 16 for critic)"
    )
    url: str | None = option(None, group=HTTP, help="e.g. https://api.openai.com/v1 or http://localhost:8000/v1")
    key_env: str | None = option(
        None, metavar="NAME", group=HTTP, help="environment variable with the key (default: OPENAI_API_KEY, if set)"
    )
    concurrency: int = option(4, group=HTTP, help="requests at once (default: 4)")
    timeout: float = option(60.0, metavar="S", group=HTTP, help="seconds allowed for one request (default: 60)")
    retries: int = option(6, group=HTTP, help="retries after a failed request (default: 6)")
    body: str = option("{}", metavar="JSON", group=HTTP, help="extra fields of the request; null removes one")
    device: str = option("auto", group=LOCAL, help=DEVICE)
    dtype: str = option("float32", choices=DTYPES, group=LOCAL, help="default: float32")
    batch: int = option(8, group=LOCAL, help="pairs at once, for critic (default: 8)")
    margin: float = option(0.0, group=LOCAL, help="bits per byte within which likelihood calls a tie (default: 0)")

    def check(self) -> None:
        self.at_least(1, "n")
        if bool(self.generations) != (self.judge is not None):
            raise ConfigError(
                "generations and --judge go together; to score judgments again, give --judgments and neither of them"
            )
        if self.judge in OWN and self.model is None:
            raise ConfigError(f"--judge {self.judge} needs --model")
        if self.judge is not None and self.judge not in OWN:
            self._check_registered(self.judge)
        if self.judge == "http" and self.url is None:
            raise ConfigError(
                "--judge http needs --url, the address of a chat endpoint such as http://localhost:8000/v1"
            )
        if not 0 < self.timeout < float("inf") or self.retries < 0:
            raise ConfigError(
                f"--timeout {self.timeout:g} must be above 0 and finite, --retries {self.retries} at least 0"
            )

    def _check_registered(self, judge: str) -> None:
        if judge not in JUDGES:
            known = ", ".join([*OWN, *JUDGES])
            raise ConfigError(
                f"no judge {judge!r}; judges are {known}; a file that registers one is given as --plugin"
            )
        if self.model is not None:
            raise ConfigError(f"--judge {judge} is a function and asks no model; drop --model {self.model}")

    def run(self, listener: Listener = SILENT, handle_signals: bool = False) -> dict[str, Any]:
        """A first Ctrl-C finishes what the judge was asked, where signals are handled, and then stops."""
        from reviser.evaluation.judges.arena import read_judgments
        from reviser.evaluation.metrics.win_rates import score

        about: dict[str, Any] = {}
        pairs = None
        if self.judge is not None:
            pairs, judge = self._pairs(), self._open_judge()
            if not self._judge(judge, pairs, listener, handle_signals):
                listener.note(f"stopped; {self.judgments} keeps what was judged; run the command again to resume")
                raise KeyboardInterrupt
            about = {"evaluator": {"name": self.model or self.judge, "sha256": judge.sha256}, "seed": self.seed}
        judgments = read_judgments(self.judgments)
        if pairs is not None:
            # The file may hold more, of an earlier run with more prompts or systems.
            asked = {key for pair in pairs for key in (pair.key, pair.swapped.key)}
            judgments = [each for each in judgments if each.key in asked]
        if not judgments:
            raise DataError(f"{self.judgments} holds no judgment; judge some generations with --judge")
        config = {
            "judge": judgments[0].judge,
            "judgments": self.judgments,
            "judgments_sha256": hash_file(self.judgments),
            "generations": hash_files(self.generations),
            "interval": "Wilson, 95%, over prompts",
        }
        scores = score(judgments)
        return make_result("arena", scores.pop("rows"), config, self.words, **scores, **about)

    def _pairs(self) -> list[Pair]:
        from reviser.evaluation.generations import read_generations
        from reviser.evaluation.judges.arena import make_pairs, refuse_empty

        generations = [each for path in self.generations for each in read_generations(path)]
        pairs = make_pairs(generations, self.seed, self.both_orders, self.n)
        if self.empty == "refuse":
            refuse_empty(pairs)
        return pairs

    def _judge(self, judge: Judge, pairs: list[Pair], listener: Listener, handle_signals: bool) -> bool:
        """Judge what is missing; whether nothing is missing any more."""
        from reviser.evaluation.judges.arena import decide_empty, hold, open_judgments

        with open_judgments(self.judgments, judge.name) as file:
            for judgment in decide_empty(file.missing(pairs), judge.name):
                file.add(judgment)
            missing = file.missing(pairs)
            with listener.count("arena", len(missing), "judgments") as advance:
                stop_text = "finishing what the judge was asked; Ctrl-C again leaves at once"
                return hold(
                    judge, missing, file, lambda _: advance(1), lambda: listener.note(stop_text),
                    handle_signals=handle_signals,
                )  # fmt: skip

    def _open_judge(self) -> Judge:
        from reviser.evaluation.judges.messages import CHAT_TEMPLATE, CRITIC_TEMPLATE, read_template

        template = read_template(self.template) if self.template else None
        if self.judge == "http":
            return self._open_chat(template or CHAT_TEMPLATE)
        if self.judge not in OWN:
            return ScoringJudge(str(self.judge))
        from reviser.evaluation.judges.critic import CriticJudge
        from reviser.evaluation.judges.likelihood_judge import EvaluatorScorer, LikelihoodJudge

        if self.judge == "critic":
            return CriticJudge(self._load(), self.batch, self.reply_tokens or 16, template or CRITIC_TEMPLATE)
        return LikelihoodJudge(EvaluatorScorer(self._load()), self.margin)

    def _open_chat(self, template: str) -> Judge:
        from reviser.evaluation.judges.chat import ChatJudge
        from reviser.evaluation.judges.endpoint import Endpoint, read_key

        endpoint = Endpoint(
            str(self.url), str(self.model), read_key(self.key_env), self.timeout, self.retries, 1.0,
            self.reply_tokens or 512, self._read_body(),
        )  # fmt: skip
        return ChatJudge(endpoint, self.concurrency, template)

    def _read_body(self) -> dict[str, Any]:
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ConfigError(
                f"--body {self.body} is not a JSON object; write e.g. --body '{{\"temperature\": null}}'"
            )
        return body

    def _load(self) -> Evaluator:
        from reviser.evaluation.evaluators import load
        from reviser.training.distributed import join_team

        return load(str(self.model), "causal", str(join_team(self.device).device), self.dtype)
