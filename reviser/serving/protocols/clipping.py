"""A text that is longer than a model reads, without its far ends.

    ...and so on. The sea was calm. They rowed| ___ |until dark. Next day they...

What stands nearest to the gap says most about it. So the text before is cut at its front and the text behind at its
end, between sentences where that leaves enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from reviser.config import ModelConfig
from reviser.proofreading.windows import SENTENCE
from reviser.tokenizer import Tokenizer

ROOM_SHARE = 2
"""Of the positions that a model reads, one in so many may be given text; the rest is left for its actions."""
LEAST_SHARE = 2
"""A cut moves to the next sentence where one in so many characters is left."""


def clip_parts(parts: Sequence[str], tokenizer: Tokenizer, config: ModelConfig) -> list[str]:
    """Parts around gaps, the first and the last as short as they must be."""
    sizes = list(map(len, tokenizer.encode_many(list(parts))))
    room = min(config.max_length, config.context) // ROOM_SHARE - sum(sizes[1:-1])
    half = max(room // 2, 1)
    first = max(half, room - sizes[-1])
    last = max(half, room - sizes[0])
    return [keep_end(parts[0], tokenizer, first), *parts[1:-1], keep_begin(parts[-1], tokenizer, last)]


def keep_end(text: str, tokenizer: Tokenizer, most: int) -> str:
    """The last tokens of a text, from where a sentence begins if one does soon enough."""
    pieces = tokenizer.pieces(tokenizer.encode(text))
    if len(pieces) <= most:
        return text
    kept = "".join(pieces[len(pieces) - most :])
    starts = [found.end() for found in SENTENCE.finditer(kept)]
    start = next((place for place in starts if LEAST_SHARE * (len(kept) - place) >= len(kept)), 0)
    return text[len(text) - len(kept) + start :]


def keep_begin(text: str, tokenizer: Tokenizer, most: int) -> str:
    """The first tokens of a text, up to where a sentence ends if one does late enough."""
    pieces = tokenizer.pieces(tokenizer.encode(text))
    if len(pieces) <= most:
        return text
    size = sum(map(len, pieces[:most]))
    ends = [found.end() for found in SENTENCE.finditer(text, 0, size) if LEAST_SHARE * found.end() >= size]
    return text[: ends[-1] if ends else size]
