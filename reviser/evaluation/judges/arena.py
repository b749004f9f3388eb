"""Pairwise comparison: two systems' texts for one prompt, and a judge that sees the prompt and names the better one.

    generations -> pairs -> judge -> judgments, one JSON object a line -> scores (metrics/win_rates.py)

Who is shown first is drawn from (seed, systems, prompt) alone, so neither the files' order nor a broken-off run
changes it. Every judgment is written when it is made, and a pair that has one is never asked again.

>>> def text(system, words):
...     return Generation(system, "p1", 0, "Once", words, "", "", True, 2, 2)
>>> [pair] = make_pairs([text("a", " upon a"), text("b", " there was")], seed=1)
>>> pair.key, pair.swapped.key
(('a', 'b', 'p1', 0), ('b', 'a', 'p1', 0))
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation

POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}
"""What the system shown first gets for each verdict that decides."""
FAILED, UNANSWERED = "failed", "unanswered"
"""A judge that named no winner (not asked again), and one that gave no reply (asked again by the next run)."""
EMPTY = "an empty text"
"""Stands for the reply where nobody was asked."""
VERDICTS = (*POINTS, FAILED, UNANSWERED)
Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts for one prompt, in the order in which they are shown."""

    first: Generation
    second: Generation

    @property
    def key(self) -> Key:
        return self.first.system, self.second.system, self.first.prompt_id, self.first.seed

    @property
    def swapped(self) -> Pair:
        return Pair(self.second, self.first)

    @property
    def digest(self) -> str:
        """Of all that the judge sees, so that a judgment is never taken for one of other texts."""
        seen = [self.first.prefix, self.first.suffix, self.first.text, self.second.text]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a judge said of a pair."""

    first: str
    second: str
    prompt_id: str
    seed: int
    verdict: str
    reply: str
    judge: str
    texts: str
    """The pair's digest."""

    @classmethod
    def of(cls, pair: Pair, verdict: str, reply: str, judge: str) -> Judgment:
        return cls(*pair.key, verdict, reply, judge, pair.digest)

    @property
    def key(self) -> Key:
        return self.first, self.second, self.prompt_id, self.seed


class Judge(Protocol):
    name: str
    """What a verdict depends on besides the texts; judgments of two names do not mix."""
    sha256: str | None
    """Of its weights, where they are here."""

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """One judgment a pair, in any order, each as soon as it is there; pairs are drawn as they are needed."""
        ...


def make_pairs(
    generations: Sequence[Generation], seed: int = 0, both_orders: bool = False, limit: int | None = None
) -> list[Pair]:
    """Every two systems' texts for the same prompt and seed; `limit` keeps the first so many prompts."""
    by_system = _by_system(generations)
    spots = dict.fromkeys((each.prompt_id, each.seed) for each in generations)
    pairs: list[Pair] = []
    prompts: set[str] = set()
    for spot in spots:
        # By prompt and not by systems: a broken-off run then leaves all systems equally far.
        met = [texts[spot] for texts in by_system.values() if spot in texts]
        if len(met) < 2 or (limit is not None and len(prompts | {spot[0]}) > limit):
            continue
        prompts.add(spot[0])
        pairs += [_in_order(Pair(*two), seed) for two in combinations(met, 2)]
    if not pairs:
        raise DataError(f"{' and '.join(by_system)} share no prompt and seed; generate them from the same prompts")
    return [each for pair in pairs for each in (pair, pair.swapped)] if both_orders else pairs


def _by_system(generations: Sequence[Generation]) -> dict[str, dict[tuple[str, int], Generation]]:
    systems: dict[str, dict[tuple[str, int], Generation]] = {}
    prompts: dict[str, Generation] = {}
    for each in generations:
        texts, spot = systems.setdefault(each.system, {}), (each.prompt_id, each.seed)
        if spot in texts:
            raise DataError(
                f"system {each.system} wrote prompt {each.prompt_id}, seed {each.seed} twice; "
                "give each file once and each system a name of its own"
            )
        known = prompts.setdefault(each.prompt_id, each)
        if (known.prefix, known.suffix) != (each.prefix, each.suffix):
            raise DataError(
                f"prompt {each.prompt_id} of {known.system} and of {each.system} are two texts; "
                "generate them from the same prompts"
            )
        texts[spot] = each
    if len(systems) < 2:
        found = f"only {next(iter(systems))}" if systems else "no generation at all"
        raise DataError(f"an arena needs two systems or more, but the files hold {found}; give another system's file")
    return systems


def _in_order(pair: Pair, seed: int) -> Pair:
    """The pair or its swap, by a coin that is the same for both."""
    low, high = sorted((pair, pair.swapped), key=lambda each: each.key)
    coin = hashlib.sha256(json.dumps([seed, *low.key]).encode()).digest()[0] & 1
    return (low, high)[coin]


def decide_empty(pairs: Iterable[Pair], judge: str) -> Iterator[Judgment]:
    """A text of nothing but white space loses unasked; two of them tie."""
    for pair in pairs:
        has_first, has_second = bool(pair.first.text.strip()), bool(pair.second.text.strip())
        if not (has_first and has_second):
            verdict = "first" if has_first else "second" if has_second else "tie"
            yield Judgment.of(pair, verdict, EMPTY, judge)


def refuse_empty(pairs: Iterable[Pair]) -> None:
    empty = {each.key: each for pair in pairs for each in (pair.first, pair.second) if not each.text.strip()}
    if empty:
        one = next(iter(empty.values()))
        raise DataError(
            f"{len(empty)} empty generation(s), the first by {one.system} for prompt {one.prompt_id}, seed "
            f"{one.seed}; generate again, or let them lose with --empty lose"
        )


def read_judgments(path: str | os.PathLike[str]) -> list[Judgment]:
    """The last judgment of every pair; a line that breaks off at the file's end is left out."""
    try:
        *lines, tail = Path(path).read_text("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); give a file that `reviser eval arena` wrote"
        ) from None
    judgments = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if _is_whole(tail):
        judgments.append(_parse(tail, f"{path}, line {len(lines) + 1}"))
    names = list(dict.fromkeys(each.judge for each in judgments))
    if len(names) > 1:
        raise DataError(
            f"{path} holds judgments of {names[0]} and of {names[1]}; keep each judge's in a file of its own"
        )
    return list({each.key: each for each in judgments}.values())


def _is_whole(line: str) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


def _parse(line: str, where: str) -> Judgment:
    try:
        record: dict[str, Any] = json.loads(line)
        judgment = Judgment(**{field.name: record[field.name] for field in fields(Judgment)})
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{where}: no judgment ({type(error).__name__}: {error}); remove the line") from None
    if judgment.verdict not in VERDICTS:
        raise DataError(f"{where}: verdict {judgment.verdict!r} is none of {', '.join(VERDICTS)}; remove the line")
    return judgment


class JudgmentFile:
    """A file that grows by one judgment a line and knows which pairs it still lacks."""

    def __init__(self, path: str | os.PathLike[str], judge: str) -> None:
        self.path, self.judge = Path(path), judge
        self.judgments: dict[Key, Judgment] = {}
        if self.path.exists():
            self.judgments = {each.key: each for each in read_judgments(path)}
            _mend(self.path)
        other = next((each.judge for each in self.judgments.values() if each.judge != judge), None)
        if other is not None:
            raise ConfigError(f"{path} holds judgments of {other}, not of {judge}; give this judge a file of its own")

    def missing(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs without a judgment; one made in the other order will do, unless both orders are wanted."""
        wanted = {pair.key for pair in pairs}
        return [pair for pair in pairs if not self._is_judged(pair, wanted)]

    def _is_judged(self, pair: Pair, wanted: set[Key]) -> bool:
        shown = [pair] if pair.swapped.key in wanted else [pair, pair.swapped]
        return any(self._has(each) for each in shown)

    def _has(self, pair: Pair) -> bool:
        known = self.judgments.get(pair.key)
        if known is not None and known.texts != pair.digest:
            raise DataError(
                f"{self.path}: {pair.first.system} and {pair.second.system} were judged on other texts for prompt "
                f"{pair.first.prompt_id}, seed {pair.first.seed}; give these generations a new file of judgments"
            )
        return known is not None and known.verdict != UNANSWERED

    def add(self, judgment: Judgment) -> None:
        """Write a judgment behind the others, a whole line at once."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(judgment), ensure_ascii=False) + "\n")
        self.judgments[judgment.key] = judgment


def _mend(path: Path) -> None:
    """End the file with a whole line: what a killed run left of one goes."""
    data = path.read_bytes()
    begin = data.rfind(b"\n") + 1
    if begin < len(data):
        is_whole = _is_whole(data[begin:].decode("utf-8", errors="replace"))
        with path.open("r+b") as file:
            file.truncate(len(data) if is_whole else begin)
            file.seek(0, os.SEEK_END)
            file.write(b"\n" if is_whole else b"")


def hold(
    judge: Judge,
    pairs: Sequence[Pair],
    file: JudgmentFile,
    show: Callable[[int], None],
    tell_stop: Callable[[], None],
) -> bool:
    """Judge the pairs and keep what is said; whether all were asked, which the first Ctrl-C prevents."""
    with _listening(tell_stop) as is_stopped:
        asked = _until(is_stopped, pairs)
        for number, judgment in enumerate(judge.judge(asked), 1):
            file.add(judgment)
            show(number)
        return not is_stopped()


def _until(is_stopped: Callable[[], bool], pairs: Iterable[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        if is_stopped():
            return
        yield pair


@contextmanager
def _listening(tell_stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C ends the drawing of pairs, and what is under way is kept; the second ends everything."""
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)
        tell_stop()

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:
        yield lambda: False  # not the main thread: whoever runs us listens
        return
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, before)
