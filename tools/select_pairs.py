"""Pairs that teach a proofreader, out of all edits: `python tools/select_pairs.py edits.jsonl.xz corrections.jsonl`.

Most edits of real documents say something else than before, or follow the style of a house. A correction is kept if

    it is small        at most 6 words in 3 places, and 40% of the words
    it says so         typo, spelling, grammar, copy edit and the like in its `message`; or its `kind` is `correction`
                       and at most 2 words change
    it is no style     not modernised spelling; more than capitals, quotation marks, hyphens or spaces change

The last line names how many pairs were left out, and why. LOG.md says what training on each part gave.
"""

from __future__ import annotations

import difflib
import gzip
import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

WORD = re.compile(r"\w+|[^\w\s]")
SAYS_SO = re.compile(
    r"typo|spell|gramm|proofread|punctuat|copy.?edit|fix(es|ed)? (a )?(few )?(small|minor)",
    re.IGNORECASE,
)
MODERN = re.compile(r"moderni[sz]e", re.IGNORECASE)
STYLE = re.compile(r"[-\s‘’“”'\"]")
MOST_WORDS, MOST_PLACES, MOST_SHARE, FEW_WORDS = 6, 3, 0.4, 2


def judge(pair: dict[str, Any]) -> str:
    """Why a pair is left out; empty where it is kept.

    >>> judge({"before": "I recieve it.", "after": "I receive it.", "message": "Fix typo"})
    ''
    >>> judge({"before": "The pod runs.", "after": "The Pod runs.", "message": "Fix typos"})
    'style'
    """
    before, after, message = pair["before"], pair["after"], str(pair.get("message") or "")
    if MODERN.search(message) or _bare(before) == _bare(after):
        return "style"
    old, new = WORD.findall(before), WORD.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changes = [each for each in matcher.get_opcodes() if each[0] != "equal"]
    num_words = sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in changes)
    if num_words > MOST_WORDS or len(changes) > MOST_PLACES or num_words > MOST_SHARE * len(old):
        return "large"
    is_correction = pair.get("kind") == "correction" and num_words <= FEW_WORDS
    return "" if is_correction or SAYS_SO.search(message) else "something else"


def _bare(text: str) -> str:
    return STYLE.sub("", text).lower()


def read(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path, "rt") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _open(path: Path, mode: str) -> TextIO:
    opened: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    return opened(path, mode, encoding="utf-8")


def main(*paths: str) -> None:
    if len(paths) < 2:
        sys.exit("error: give files of pairs and, last, the file to write")
    *sources, target = map(Path, paths)
    counts = Counter[str]()
    with _open(target, "wt") as out:
        for source in sources:
            for pair in read(source):
                reason = judge(pair)
                counts[reason or "kept"] += 1
                if not reason:
                    out.write(json.dumps(pair, ensure_ascii=False) + "\n")
    print(", ".join(f"{count:,} {reason}" for reason, count in counts.most_common()))


if __name__ == "__main__":
    main(*sys.argv[1:])
