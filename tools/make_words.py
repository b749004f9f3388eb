"""Makes the list of words that reviser/proofreading/spelling.py reads.

    python tools/make_words.py CORPUS [CORPUS ...]

CORPUS is a file or folder as `reviser data prepare` takes it. A word counts in lower case, wherever it stands.
"""

from __future__ import annotations

import argparse
import lzma

from reviser.evaluation.prompts import read_named
from reviser.mistakes.word_sources import SPELLED, count_words
from reviser.proofreading.spelling import LEAST_COUNT, WORDS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", nargs="+")
    args = parser.parse_args()
    counts = count_words(text for _, text in read_named(args.corpus))
    lines: dict[int, list[str]] = {}
    for word, count in counts.items():
        if count.num >= LEAST_COUNT and SPELLED(word):
            lines.setdefault((count.num // LEAST_COUNT).bit_length() - 1, []).append(word)
    text = "\n".join(" ".join(sorted(lines.get(line, ()))) for line in range(max(lines) + 1))
    WORDS.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{WORDS.name}: {sum(map(len, lines.values())):,} words, {WORDS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
