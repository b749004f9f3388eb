"""English words that people take for each other, leave out or exchange, and how they spell by ear.

Everything here is written in lower case, with ' for an apostrophe.
"""

from __future__ import annotations

import re


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CONFUSED = """
their there they're; its it's; your you're; whose who's; then than; to too two; affect effect; affects effects;
affected effected; lose loose; loses looses; losing loosing; who whom; who which; which that; accept except; advice
advise; adapt adopt; allowed aloud; among between; amount number; bare bear; beside besides; brake break; breath
breathe; buy by; cite site sight; close clothes; coarse course; complement compliment; complementary complimentary;
conscience conscious; council counsel; desert dessert; device devise; dependent dependant; discreet discrete; each
every; economic economical; emigrate immigrate; ensure insure assure; especially specially; fair fare; farther
further; fewer less; formally formerly; forth fourth; hear here; hole whole; historic historical; hour our; imply
infer; knew new; know no now; later latter; lay lie; lead led; lesson lessen; many much; moral morale; of off; one
won; passed past; peace piece; personal personnel; plain plane; practice practise; precede proceed; principal
principle; quiet quite; raise rise; right write; role roll; see sea; sense since; so such; some any; sometime
sometimes; stationary stationery; say tell; said told; thorough through though; threw through; thought though; tough
though; want wont won't; was were; weak week; weather whether; wear where were; which witch; wood would; were we're;
where were; another other; other others; this these; that those; these this; those that; well good; hard hardly;
late lately; most mostly; near nearly; made make; fun funny; interested interesting; bored boring; excited exciting;
confused confusing; tired tiring; surprised surprising; worth worthy; border boarder; minor miner; sale sail; steel
steal; waste waist; vary very; lightening lightning; alter altar; lets let's; cant can't; dont don't; percent
percentage; between among; everyone every; someone some; and an; form from; trail trial; casual causal; martial
marital; angel angle; diary dairy; expand expend; quantity quality; access excess; proof prove; belief believe;
relief relieve; choice choose; choose chose; loss lost; difference different; importance important; success
successful succeed; analysis analyses; criterion criteria; phenomenon phenomena; data datum; medium media; bacteria
bacterium; man men; woman women; foot feet; person people persons
"""
"""Sets of words between semicolons; each may stand for any other of its set."""

ARTICLES: dict[str, tuple[str, ...]] = {"a": ("the", "the", "an"), "an": ("a", "a", "the"), "the": ("a", "a", "this")}
PREPOSITIONS = {
    "about": ("on", "of", "for"),
    "above": ("over", "on"),
    "across": ("through", "over"),
    "after": ("behind", "since"),
    "against": ("to", "for"),
    "along": ("through", "with"),
    "among": ("between", "in"),
    "around": ("in", "about"),
    "as": ("like", "for"),
    "at": ("in", "on", "to"),
    "before": ("until", "in front of"),
    "behind": ("after",),
    "below": ("under",),
    "between": ("among", "in"),
    "by": ("from", "with", "in", "until"),
    "during": ("in", "while", "for"),
    "for": ("to", "of", "in", "since"),
    "from": ("of", "by", "since"),
    "in": ("on", "at", "into", "of", "for"),
    "inside": ("in",),
    "into": ("in", "to"),
    "of": ("in", "for", "from", "on"),
    "off": ("of", "from"),
    "on": ("in", "at", "of", "to"),
    "onto": ("on", "in"),
    "over": ("on", "above", "during"),
    "since": ("from", "for"),
    "through": ("by", "across"),
    "to": ("for", "at", "for"),
    "toward": ("to",),
    "towards": ("to",),
    "under": ("below",),
    "until": ("to", "by"),
    "upon": ("on", "at"),
    "with": ("by", "of", "to", "and"),
    "within": ("in",),
    "without": ("with no", "out"),
}
AUXILIARIES = {
    "am": ("is", "are", "was"),
    "are": ("is", "is", "were", "be"),
    "be": ("is", "been", "being", "are"),
    "been": ("be", "being"),
    "being": ("been", "be"),
    "can": ("could", "may"),
    "could": ("can", "would"),
    "did": ("do", "does", "was"),
    "do": ("does", "did", "are"),
    "does": ("do", "do", "did", "is"),
    "had": ("have", "has", "was"),
    "has": ("have", "have", "had", "is"),
    "have": ("has", "has", "had", "of"),
    "having": ("have", "had"),
    "is": ("are", "are", "was", "be", "has"),
    "may": ("might", "can"),
    "might": ("may", "could"),
    "must": ("should", "have to"),
    "shall": ("will", "should"),
    "should": ("must", "would"),
    "was": ("were", "were", "is", "has"),
    "were": ("was", "was", "are"),
    "will": ("would", "can"),
    "would": ("will", "could"),
}
MODALS = _words("can could may might must shall should will would")
PRONOUNS = {
    "he": ("she", "him", "they"),
    "him": ("he", "his", "them"),
    "his": ("him", "he", "their"),
    "her": ("his", "she", "hers"),
    "hers": ("her", "her's"),
    "himself": ("hisself", "itself", "him"),
    "herself": ("her self", "itself"),
    "i": ("me", "we"),
    "it": ("they", "its", "this"),
    "its": ("it's", "it's", "their", "it"),
    "itself": ("it self", "themselves"),
    "me": ("I", "my"),
    "my": ("me", "mine"),
    "our": ("us", "we"),
    "ours": ("our", "our's"),
    "she": ("he", "her"),
    "that": ("which", "this"),
    "their": ("there", "they", "his", "its"),
    "theirs": ("their", "their's"),
    "them": ("they", "it", "him"),
    "themselves": ("themself", "theirselves", "them"),
    "they": ("them", "it", "he"),
    "this": ("these", "that", "it"),
    "these": ("this", "those"),
    "those": ("these", "that"),
    "us": ("we", "our"),
    "we": ("us", "they"),
    "which": ("that", "who", "what"),
    "who": ("which", "whom", "that"),
    "whom": ("who", "which"),
    "whose": ("who's", "who", "which"),
    "you": ("your", "they"),
    "your": ("you", "you're"),
}
KEPT = frozenset(
    _words("his her hers its my our ours their theirs that this these those which who whom whose your me")
)
"""Pronouns that are exchanged and never left out: without them the sense is lost, not only the grammar."""
SUBJECTS = _words("he i it she they we you")
DETERMINERS = _words("a an the this that these those my his her its our their some any")
COMMA_BEFORE = _words("that because if when than and or who whether where while but which so as in")
"""Words before which a comma is put where none belongs."""
FORGOTTEN = _words(
    "and or there more than then when if because so such all some any who which what how go get out up"
)
"""Words that are left out in haste and whose place still shows."""
EXCHANGED = _words(
    "also only always never often still not just even is are was were has have had can will would should could very "
    "too quite really usually sometimes now already it what how"
)
"""Words that change places with the next."""
COMPOUNDED = frozenset(
    _words(
        "some any every with out in to up down over under self selves thing things one body where times ever how "
        "time day days room ball work works man men land house side way ways water book line light ground back fore "
        "here there what who when wide night week end year town fire field be may al so more less not even after "
        "mean while"
    )
)
"""Parts of compounds; a word is split in two only where one of them is among these."""
SHORT_PARTS = frozenset(_words("in to up on of it be so no an at as is my me we he or by do go if a"))
CONTRACTED = _words(
    "it's that's he's she's what's who's there's here's where's let's how's everyone's someone's everything's"
)
"""Words with 's that are no possessives."""

NEIGHBOURS = {
    "a": "qsz", "b": "vgn", "c": "xdv", "d": "sfe", "e": "wrd", "f": "dgr", "g": "fht", "h": "gjy", "i": "uok",
    "j": "hku", "k": "jli", "l": "kop", "m": "nj", "n": "bmh", "o": "ipl", "p": "ol", "q": "wa", "r": "etf",
    "s": "adw", "t": "ryg", "u": "yij", "v": "cbf", "w": "qes", "x": "zcs", "y": "tuh", "z": "xa",
}  # fmt: skip
"""Letters beside each other on a keyboard."""

BY_EAR = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"ie(?=[a-z])", "ei"), (r"ei(?=[a-z])", "ie"), (r"able$", "ible"), (r"ible$", "able"), (r"ably$", "ibly"),
        (r"ibly$", "ably"), (r"ant$", "ent"), (r"ent$", "ant"), (r"ance$", "ence"), (r"ence$", "ance"),
        (r"ancy$", "ency"), (r"ency$", "ancy"), (r"ately$", "atly"), (r"ely$", "ly"), (r"ally$", "aly"),
        (r"lly$", "ly"),
        (r"ful$", "full"), (r"fully$", "fuly"), (r"iness$", "yness"), (r"ies$", "ys"), (r"ied$", "yed"),
        (r"(?<=[a-z]{2})e(?=ing$)", ""), (r"(?<=[bcdgklmnprtvz])(?=ing$)", "e"), (r"eable$", "able"),
        (r"tion(?=s?$)", "sion"), (r"ssion(?=s?$)", "tion"), (r"cian(?=s?$)", "tion"), (r"tial$", "cial"),
        (r"cial$", "tial"), (r"cious$", "tious"), (r"tious$", "cious"), (r"ious$", "ous"), (r"eous$", "ious"),
        (r"or$", "er"), (r"er$", "or"), (r"ar$", "er"), (r"ery$", "ary"), (r"ary$", "ery"), (r"ory$", "ery"),
        (r"ize", "ice"), (r"ceed$", "cede"), (r"cede$", "ceed"), (r"(?<=[a-z])ph", "f"), (r"^ph", "f"),
        (r"(?<=[a-z])gh(?=t)", ""), (r"^wh(?=[aei])", "w"), (r"^kn", "n"), (r"^wr(?=[aeio])", "r"), (r"^rh", "r"),
        (r"mn$", "m"), (r"mb$", "m"), (r"sc(?=[ei])", "s"), (r"(?<=[a-z])xc(?=[ei])", "x"), (r"(?<=[aeou])cq", "q"),
        (r"(?<=[a-z])ck(?=[a-z])", "k"), (r"(?<=[aeiou])c(?=[ei])", "s"), (r"(?<=[aeiou])s(?=[ei])", "c"),
        (r"ea(?=[a-z])", "ee"), (r"ee(?=[a-z])", "ea"), (r"ou(?=[a-z])", "u"), (r"au", "o"), (r"ai(?=[a-z])", "ia"),
        (r"ui(?=[lt])", "iu"), (r"que$", "ck"), (r"gue$", "g"), (r"(?<=[a-z]{2})dg", "g"), (r"(?<=[aeiou])nm", "m"),
        (r"(?<=[a-z]{2})tch", "ch"), (r"iou", "io"), (r"(?<=[a-z]{2})y(?=[a-z])", "i"),
        (r"(?<=[bcdfgklmnprst])i(?=[bdfglmnt][aeiou])", "e"),
        (r"(?<=[bcdfgklmnprst])e(?=[bdfglmnrt][aeiou])", "i"), (r"(?<=[bcdfgklmnprst])a(?=[bdglmnrt][aeiou])", "e"),
        (r"(?<=[a-z])([bcdfglmnprstz])\1", r"\1"), (r"(?<=[aeiou])([cdflmnprst])(?=[aeiou])", r"\1\1"),
    )
)  # fmt: skip
"""How a spelling is replaced by one that sounds alike, the likelier first."""

DERIVED = (
    ("", "ly"), ("y", "ily"), ("le", "ly"), ("ent", "ence"), ("ant", "ance"), ("ive", "ion"), ("ic", "ical"),
    ("ical", "ically"), ("", "ness"), ("ate", "ation"), ("ct", "ction"), ("ss", "ssion"), ("", "ment"),
    ("able", "ability"), ("", "ful"), ("y", "ical"), ("fy", "fication"), ("ive", "ively"),
)  # fmt: skip
"""Endings of two parts of speech of one word."""


def read_confused() -> dict[str, tuple[str, ...]]:
    """The words that each confused word is taken for."""
    found: dict[str, list[str]] = {}
    for line in CONFUSED.split(";"):
        words = line.split()
        for word in words:
            known = found.setdefault(word, [])
            known += [other for other in words if other != word and other not in known]
    return {word: tuple(others) for word, others in found.items()}


def spell_by_ear(word: str) -> list[str]:
    """Spellings that sound like the word, the likelier first; the first letters stay unless they are silent.

    >>> spell_by_ear("receive")[:2]
    ['recieve', 'reseive']
    """
    found: dict[str, None] = {}
    for pattern, replacement in BY_EAR:
        for match in pattern.finditer(word):
            spelled = word[: match.start()] + match.expand(replacement) + word[match.end() :]
            if spelled != word and len(spelled) > 2:
                found[spelled] = None
    return list(found)
