"""A writer whose model is a function from text to text: it takes the actions that lead there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from tiny import random_model

from reviser.canvas import replay
from reviser.config import ModelConfig
from reviser.decoding.presets import DEFAULT, Sampling
from reviser.decoding.requests import Decoded, Request
from reviser.decoding.writer import Text, Writer
from reviser.orders.align import align
from reviser.orders.record import Draft
from reviser.proofreading.proofread import Edited
from reviser.tokenizer import Tokenizer, load

OPERATORS = ("jump", "delete", "replace")
FIXES = {"teh": "the", "recieve": "receive", "alot": "a lot", "naïve": "naive", "very very": "very", "dont": "don't"}


def fix(text: str) -> str:
    """Every misspelling corrected, wherever it stands."""
    return re.sub("|".join(rf"\b{word}\b" for word in FIXES), lambda found: FIXES[found[0]], text)


class ScriptedWriter(Writer):
    """Rewrites what is not protected with `rewrite`; every action has the log-probability that `score` gives it."""

    def __init__(
        self,
        rewrite: Callable[[str], str] = fix,
        tokenizer: Tokenizer | None = None,
        score: Callable[[int], float] = lambda _: math.log(0.999),
        context: int = 160,
    ) -> None:
        tokenizer = tokenizer or load("default")
        config = ModelConfig(
            num_text=tokenizer.num_text, pad=tokenizer.pad, num_layers=1, width=16, num_heads=1, ff_width=16,
            context=context, max_length=context, operators=OPERATORS,
        )  # fmt: skip
        super().__init__(random_model(config), tokenizer)
        self.rewrite, self.score = rewrite, score
        self.asked: list[Draft] = []

    def edit(self, text: str, **options: Any) -> Edited:
        """Every edit of the script, unless told otherwise."""
        return super().edit(text, **{"min_probability": 0.0, "reread": False} | options)

    def read(self, texts: Sequence[Sequence[int]], begins: Sequence[int] | None = None) -> list[list[float]]:
        """A second reading has no opinion, as on texts too long to read."""
        return [[] for _ in texts]

    def write(
        self, requests: Sequence[Request], sampling: Sampling = DEFAULT, num_alternatives: int = 0
    ) -> list[Text]:
        self.asked += [request.draft for request in requests]
        return [self._read(request.draft, self._decode(request)) for request in requests]

    def _decode(self, request: Request) -> Decoded:
        draft = request.draft
        actions = align(draft.canvas, self._target(draft), draft.rules)[: request.budget(self.model.config.context)]
        canvas = replay(draft.canvas, actions, draft.rules)
        scores = tuple(self.score(action) for action in actions)
        return Decoded(actions, scores, canvas, "model" if canvas.is_stopped else "context")

    def _target(self, draft: Draft) -> list[int]:
        target: list[int] = []
        for is_fixed, group in groupby(range(len(draft.tokens)), key=draft.canvas.is_fixed):
            tokens = [draft.tokens[place] for place in group]
            text = self.tokenizer.decode(tokens)
            target += tokens if is_fixed or self.rewrite(text) == text else self.tokenizer.encode(self.rewrite(text))
        return target
