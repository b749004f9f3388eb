"""Edits as LanguageTool's matches: which rule, what is said of it, where, and what stands around it.

>>> from reviser.proofreading.edits import Edit
>>> rule_of(Edit(0, 3, "teh", "the", 0.9)).id, rule_of(Edit(4, 4, "", ",", 0.9)).id
('REVISER_SPELLING', 'REVISER_PUNCTUATION')
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited
from reviser.proofreading.windows import PARAGRAPH, SENTENCE
from reviser.serving.protocols.annotated import AnnotatedText, Utf16, widen

CONTEXT = 40
"""Characters shown on either side of a match."""
ALIKE = 0.6
"""How much of two words must be the same for one to be a misspelling of the other."""


@dataclass(frozen=True, slots=True)
class EditRule:
    """A kind of edit."""

    id: str
    description: str
    issue_type: str
    category: tuple[str, str]
    """Id and name."""
    fits: Callable[[str, str], bool]
    """Whether it is about a change from one text to another."""


def _without(kinds: str, text: str) -> str:
    """A text without characters whose category begins with one of `kinds`."""
    return "".join(each for each in text if unicodedata.category(each)[0] not in kinds)


def _is_similar(before: str, after: str) -> bool:
    words = [text.split() for text in (before, after)]
    if any(len(each) != 1 for each in words):
        return False
    return difflib.SequenceMatcher(None, words[0][0], words[1][0], autojunk=False).ratio() >= ALIKE


RULES = (
    EditRule(
        "REVISER_WHITESPACE", "Spaces", "whitespace", ("TYPOGRAPHY", "Typography"),
        lambda before, after: "".join(before.split()) == "".join(after.split()),
    ),
    EditRule(
        "REVISER_CASING", "Upper and lower case", "typographical", ("CASING", "Capitalization"),
        lambda before, after: before.casefold() == after.casefold(),
    ),
    EditRule(
        "REVISER_PUNCTUATION", "Punctuation", "typographical", ("PUNCTUATION", "Punctuation"),
        lambda before, after: _without("PZ", before).casefold() == _without("PZ", after).casefold(),
    ),
    EditRule(
        "REVISER_MISSING_WORD", "A missing word", "grammar", ("GRAMMAR", "Grammar"),
        lambda before, after: not before.strip(),
    ),
    EditRule(
        "REVISER_EXTRA_WORD", "A word too many", "grammar", ("GRAMMAR", "Grammar"),
        lambda before, after: not after.strip(),
    ),
    EditRule("REVISER_SPELLING", "A word close to another", "misspelling", ("TYPOS", "Possible Typo"), _is_similar),
    EditRule("REVISER_WORDING", "Other words", "grammar", ("GRAMMAR", "Grammar"), lambda before, after: True),
)  # fmt: skip
"""From the most special to the one that fits everything."""


def rule_of(edit: Edit) -> EditRule:
    return next(rule for rule in RULES if rule.fits(edit.before, edit.after))


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """Which rules a client wants to hear of."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    """Ids of rules or categories."""
    is_only: bool = False
    """Whether nothing but `enabled` counts."""

    def wants(self, rule: EditRule) -> bool:
        names = {rule.id, rule.category[0]}
        return bool(names & self.enabled) if self.is_only else not names & self.disabled


def make_matches(annotated: AnnotatedText, edited: Edited, choice: RuleChoice) -> list[dict[str, Any]]:
    """A match for every edit that is wanted and does not reach across markup."""
    text, units = annotated.plain, Utf16(annotated.document)
    spans = [(0, 0), *((edit.start, edit.end) for edit in edited.edits), (len(text), len(text))]
    limits = [(before[1], after[0]) for before, after in zip(spans, spans[2:], strict=False)]
    ends = [0, *_sentence_ends(text), len(text)]
    matches = []
    for edit, limit in zip(edited.edits, limits, strict=True):
        rule = rule_of(edit)
        start, end = widen(text, edit.start, edit.end, limit)
        place = annotated.find(start, end) if choice.wants(rule) and start < end else None
        if place is None:
            continue
        replacement = text[start : edit.start] + edit.after + text[edit.end : end]
        offset, length = units.count(place[0]), units.count(place[1]) - units.count(place[0])
        matches.append(
            {
                "message": _message(edit),
                "shortMessage": rule.description,
                "offset": offset,
                "length": length,
                "replacements": [{"value": replacement}],
                "context": _context(annotated.document, *place),
                "sentence": next((text[a:b].strip() for a, b in pairwise(ends) if a <= start < b), text),
                "type": {"typeName": "Other"},
                "rule": {
                    "id": rule.id,
                    "description": rule.description,
                    "issueType": rule.issue_type,
                    "category": {"id": rule.category[0], "name": rule.category[1]},
                    "isPremium": False,
                    "confidence": round(edit.probability, 4),
                },
                "ignoreForIncompleteSentence": False,
                "contextForSureMatch": -1,
            }
        )
    return matches


def _sentence_ends(text: str) -> list[int]:
    return sorted({match.end() for pattern in (PARAGRAPH, SENTENCE) for match in pattern.finditer(text)})


def _message(edit: Edit) -> str:
    before, after = edit.before.strip(), edit.after.strip()
    if not before and not after:
        return "The space here should be another."
    if not before:
        return f"Insert “{after}”."
    if not after:
        return f"Delete “{before}”."
    return f"Write “{after}” instead of “{before}”."


def _context(document: str, start: int, end: int) -> dict[str, Any]:
    first, last = max(start - CONTEXT, 0), min(end + CONTEXT, len(document))
    lead = "..." if first else ""
    shown = re.sub(r"\s", " ", document[first:last])
    units = Utf16(shown)
    return {
        "text": lead + shown + ("..." if last < len(document) else ""),
        "offset": len(lead) + units.count(start - first),
        "length": units.count(end - first) - units.count(start - first),
    }


def known_rules() -> Sequence[str]:
    """Ids of rules and categories."""
    return tuple(dict.fromkeys(name for rule in RULES for name in (rule.id, rule.category[0])))
