"""A table of mistakes for one tokenizer: the commonest words of a corpus, and what can become of each.

    boats      inflection boat;  phonetic beats;  keyboard yes;  apostrophe yes;  noun, plural, letters only
    receive    misspelling recieve, recive, ...;  inflection receives, received, receiving;  ...

Slips of the fingers and all that concerns several words are drawn when a mistake is made; the rest is listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from reviser.errors import DataError, TokenizerError
from reviser.mistakes import english
from reviser.mistakes.mistake_kinds import Kind
from reviser.mistakes.mistake_table import (
    BASE,
    COMPARATIVE,
    DETERMINER,
    KEEP,
    LETTERS_ONLY,
    LONGEST,
    MODAL,
    NAME,
    NOUN,
    PAST,
    PLURAL,
    PREPOSITION,
    SUBJECT,
    VERB,
    MistakeTable,
    Rule,
)
from reviser.mistakes.word_bpe import NEEDED, Merges
from reviser.mistakes.word_sources import SPELLED, Inflected, WordCount
from reviser.tokenizer import Tokenizer

LEAST_COUNT = 3
"""A word that a corpus has less often is left out: it may be a mistake itself."""
MOST_MISSPELLINGS, MOST_BY_EAR = 64, 8
NUM_DOUBLED, NUM_MERGED, NUM_PARTS, NUM_NAMES = 150, 500, 3000, 5000
"""How many of the commonest words are doubled, run together, parts of others, and names that are misspelled."""
NAME_SHARE = 0.8
RARE_FORM = 0.02
"""An inflection with a smaller share of the word's own count is left out."""
LONGEST_ALTERNATIVE = 2 * LONGEST
FUNCTION_WORDS: dict[Kind, dict[str, tuple[str, ...]]] = {
    Kind.ARTICLE: english.ARTICLES,
    Kind.PREPOSITION: english.PREPOSITIONS,
    Kind.AUXILIARY: english.AUXILIARIES,
    Kind.PRONOUN: english.PRONOUNS,
}
RULES = (
    Rule(LETTERS_ONLY, COMPARATIVE, ("more",)),
    Rule(MODAL, BASE, ("to",)),
    Rule(SUBJECT, PAST, ("was", "is", "had")),
    Rule(VERB, DETERMINER, ("about", "to", "for", "on", "with", "at")),
    Rule(PREPOSITION, NAME, ("the",)),
)
POSSESSIVE = "'s"
"""Stands for every word with 's that is not in the table."""


@dataclass
class WordFacts:
    """What can become of a word."""

    classes: int = 0
    kinds: int = 0
    alternatives: dict[Kind, list[str]] = field(default_factory=dict)

    def allow(self, kind: Kind, is_allowed: bool = True) -> None:
        self.kinds |= 1 << kind if is_allowed else 0

    def offer(self, kind: Kind, words: Iterable[str]) -> None:
        found = [word for word in words if len(word) <= LONGEST_ALTERNATIVE]
        if found:
            self.alternatives[kind] = found
            self.allow(kind)


def choose_words(
    counts: Mapping[str, WordCount], misspellings: Mapping[str, list[str]], num_words: int
) -> dict[str, WordCount]:
    """The commonest words, the commonest first; words that the mistakes of small words need are always among them."""
    wrong = {word for words in misspellings.values() for word in words}
    needed = {*english.CONTRACTED, *english.FORGOTTEN, *english.EXCHANGED, *english.COMMA_BEFORE}
    needed = needed.union(*FUNCTION_WORDS.values())
    known = sorted(
        (word for word, count in counts.items() if count.num >= LEAST_COUNT and _is_word(word) and word not in wrong),
        key=lambda word: (-counts[word].num, word),
    )
    if not known:
        raise DataError(f"no word occurs {LEAST_COUNT} times; an error table needs more text to take its words from")
    none = WordCount(0, 0, 0)
    return {
        word: counts.get(word, none) for word in [*known[:num_words], *sorted(needed.difference(known[:num_words]))]
    }


def _is_word(word: str) -> bool:
    if not SPELLED(word) or len(word) > LONGEST or (word.endswith(POSSESSIVE) and word not in english.CONTRACTED):
        return False
    return len(word) > 1 or word in ("a", "i")


def find_facts(
    words: Mapping[str, WordCount],
    misspellings: Mapping[str, list[str]],
    inflections: Mapping[str, Inflected],
) -> dict[str, WordFacts]:
    """What can become of each word; `words` are ordered by how common they are."""
    facts = {word: _classify(word, count, inflections.get(word, Inflected())) for word, count in words.items()}
    parts = dict.fromkeys(list(words)[:NUM_PARTS])
    confused = english.read_confused()
    for rank, (word, each) in enumerate(facts.items()):
        is_name, is_small = bool(each.classes & NAME), _is_small(word)
        if len(word) > 3:
            each.offer(Kind.MISSPELLING, misspellings.get(word, [])[:MOST_MISSPELLINGS])
        is_letters = bool(each.classes & LETTERS_ONLY)
        each.allow(Kind.KEYBOARD, is_letters and len(word) > 2 and (not is_name or rank < NUM_NAMES))
        each.allow(Kind.APOSTROPHE, not is_letters or bool(each.classes & PLURAL))
        each.allow(Kind.LOWERED)
        if is_name and not is_small:
            each.allow(Kind.EXTRA)
            continue
        if not is_small:
            _offer_forms(each, word, words, facts, inflections.get(word, Inflected()))
            each.offer(Kind.SPLIT, _split(word, parts))
        each.offer(Kind.CONFUSION, confused.get(word, ()))
        each.allow(Kind.MERGED, rank < NUM_MERGED and is_letters)
        each.allow(Kind.DOUBLED, rank < NUM_DOUBLED and is_letters)
        each.allow(Kind.RAISED, bool(each.classes & NOUN) and len(word) > 3)
        _offer_small(each, word)
    facts[POSSESSIVE] = WordFacts(0, 1 << Kind.APOSTROPHE | 1 << Kind.LOWERED)
    return facts


def _is_small(word: str) -> bool:
    return any(word in group for group in FUNCTION_WORDS.values())


def _classify(word: str, count: WordCount, inflected: Inflected) -> WordFacts:
    tags = inflected.tags
    is_noun, is_adjective = bool(tags & {"NN", "NNS"}), bool(tags & {"JJ"})
    classes = LETTERS_ONLY if word.isalpha() else 0
    num_inside = count.num - count.num_first
    is_name = word.split("'")[0] == "i" or (num_inside > 0 and count.num_capital > NAME_SHARE * num_inside)
    if _is_small(word):
        classes |= PREPOSITION if word in english.PREPOSITIONS else 0
        classes |= MODAL if word in english.MODALS else 0
        classes |= SUBJECT if word in english.SUBJECTS else 0
        classes |= DETERMINER if word in english.DETERMINERS else 0
        classes |= KEEP if word in english.KEPT else 0
        return WordFacts(classes | (NAME if word == "i" else 0))
    if is_name:
        return WordFacts(classes | NAME)
    classes |= NOUN if is_noun else 0
    classes |= PLURAL if "NNS" in tags and "NN" not in tags and word.endswith("s") else 0
    if not is_noun and not is_adjective:
        classes |= VERB if tags & {"VB", "VBD", "VBZ", "VBP"} else 0
        classes |= PAST if "VBD" in tags and "VB" not in tags else 0
        classes |= BASE if "VB" in tags else 0
    classes |= COMPARATIVE if "JJR" in tags and not is_noun else 0
    return WordFacts(classes)


def _offer_forms(
    each: WordFacts,
    word: str,
    words: Mapping[str, WordCount],
    facts: Mapping[str, WordFacts],
    inflected: Inflected,
) -> None:
    """Other forms of the same word, and spellings that sound like it and are no word."""

    def is_usual(other: str) -> bool:
        is_known = other in words and not facts[other].classes & NAME and not _is_small(other)
        return is_known and words[other].num >= RARE_FORM * words[word].num

    forms = []
    for other, tags in inflected.others.items():
        if (
            is_usual(other)
            and tags & {"NN", "NNS", "VB", "VBZ", "VBD", "VBN", "VBG"}
            and inflected.tags - {"JJ", "JJR", "JJS"}
        ):
            forms += [other] * (2 if _is_agreement(inflected.tags, tags) else 1)
    each.offer(Kind.INFLECTION, forms)
    each.offer(Kind.DERIVATION, [other for other in _derive(word) if is_usual(other) and other not in forms])
    if len(word) > 4:
        by_ear = [spelled for spelled in english.spell_by_ear(word) if spelled not in words]
        each.offer(Kind.PHONETIC, by_ear[:MOST_BY_EAR])


def _is_agreement(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two forms differ in number, which is what people get wrong most often."""
    pairs = (("NN", "NNS"), ("VB", "VBZ"))
    return any((a in one and b in other) or (b in one and a in other) for a, b in pairs)


def _derive(word: str) -> list[str]:
    found: dict[str, None] = {}
    for pair in english.DERIVED:
        for old, new in (pair, pair[::-1]):
            stem = word.removesuffix(old)
            if word.endswith(old) and len(stem) > 3 and stem + new != word:
                found[stem + new] = None
    return list(found)


def _split(word: str, parts: Mapping[str, None]) -> list[str]:
    """The word in two words, where it looks like a compound."""
    found = []
    for at in range(1, len(word)):
        first, second = word[:at], word[at:]
        is_known = first in parts and second in parts and english.COMPOUNDED & {first, second}
        if is_known and all(len(part) > 2 or part in english.SHORT_PARTS for part in (first, second)):
            found.append(f"{first} {second}")
    return found


def _offer_small(each: WordFacts, word: str) -> None:
    """What becomes of small words."""
    for kind, group in FUNCTION_WORDS.items():
        each.offer(kind, group.get(word, ()))
    each.allow(Kind.EXTRA, any(each.classes & rule.now for rule in RULES))
    each.allow(Kind.MISSING, word in english.FORGOTTEN)
    each.allow(Kind.EXCHANGED, word in english.EXCHANGED)
    each.allow(Kind.COMMA_ADDED, word in english.COMMA_BEFORE)


def make_table(tokenizer: Tokenizer, facts: Mapping[str, WordFacts], rules: tuple[Rule, ...] = RULES) -> MistakeTable:
    """The table of some words for a tokenizer."""
    merges = Merges.of(tokenizer)
    for word in list(facts)[:2000]:
        if merges.encode(f" {word}".encode()) != tokenizer.encode(f" {word}"):
            raise TokenizerError(f"{NEEDED}; this one encodes {word!r} otherwise than its merges say")
    tokens = [_bytes_of(tokenizer, id) for id in range(tokenizer.num_text)]
    listed = [
        [(kind, other) for kind, others in sorted(each.alternatives.items()) for other in others]
        for each in facts.values()
    ]
    alternatives = [pair for pairs in listed for pair in pairs]
    return MistakeTable(
        tokenizer_sha256=tokenizer.sha256,
        token_bytes=_flat(tokens),
        token_lengths=np.array([len(token) for token in tokens], np.uint16),
        merges=merges,
        word_bytes=_flat(word.encode() for word in facts),
        word_lengths=np.array([len(word) for word in facts], np.uint8),
        word_classes=np.array([each.classes for each in facts.values()], np.uint32),
        word_kinds=np.array([each.kinds for each in facts.values()], np.uint32),
        num_alternatives=np.array([len(pairs) for pairs in listed], np.uint16),
        alternative_bytes=_flat(other.encode() for _, other in alternatives),
        alternative_lengths=np.array([len(other) for _, other in alternatives], np.uint8),
        alternative_kinds=np.array([kind for kind, _ in alternatives], np.uint8),
        rules=rules,
    )


def _bytes_of(tokenizer: Tokenizer, id: int) -> bytes:
    """What a token stands for; nothing where a vocabulary has no token of that number."""
    try:
        return tokenizer.bytes_of(id)
    except TokenizerError:
        return b""


def _flat(parts: Iterable[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(parts), np.uint8).copy()
