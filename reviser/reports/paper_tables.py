"""Tables of a reproduction: our systems beside the paper's numbers, and how each was trained.

A reproduction's rows name the table they belong to and hold stable keys; what each table, system and column is called
stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from reviser.orders.statistics import ROWS
from reviser.reports.gap_tables import describe_middle, show_quantiles
from reviser.reports.results import Document
from reviser.reports.tables import NOTHING, Cell, Row, Table, get, show_any, tabulate

SYSTEMS = {
    "ar": "left to right",
    "paper": "the paper's Reviser",
    "ours": "our Reviser",
    "mdlm": "MDLM",
    "sedd": "SEDD",
    "(reference)": "the original text",
    "(nothing)": "nothing in the gap",
}
"""What the systems of a reproduction are called; others have the names they were given."""
DENOISERS = ("mdlm", "sedd")
STEPS = 128
"""Of a diffusion model whose name does not say."""

SUMMARY = {
    "bits_per_byte": "bits/byte, at most",
    "perplexity": "evalPPL",
    "distinct_2": "distinct-2",
    "bytes_per_text": "bytes a text",
    "mauve": "MAUVE",
    "win_percent": "% won against left to right",
    "middle_bits_per_byte": "true middle of a gap, bits/byte",
    "suffix_bits_per_byte": "suffix after the filling, bits/byte",
    "exact_percent": "% of gaps of 1 to 3 words guessed",
    "within_percent": "% of fillings half to twice as long",
    "non_end_percent": "% inserted not at the end",
    "gmacs": "1e9 multiply-accumulates a text",
    "seconds": "seconds a text",
}
SHORT_SUMMARY = (
    "bits_per_byte",
    "perplexity",
    "mauve",
    "win_percent",
    "middle_bits_per_byte",
    "suffix_bits_per_byte",
    "gmacs",
)
"""The columns of README.md."""
DIFFERENCES = {
    "bits_per_byte_more": "bits/byte more than left to right, at most",
    "perplexity_ratio": "times left to right's evalPPL",
    "middle_bits_per_byte_more": "true middle of a gap, bits/byte more than left to right",
    "suffix_bits_per_byte_more": "suffix after the filling, more than after an empty gap",
}
MODELS = {
    "parameters": "parameters",
    "trained_positions": "trained positions",
    "recipe": "recipe",
    "order": "order",
    "data": "data",
    "model": "model",
    "weights": "weights",
}
PAPER = {"paper_100m": "the paper, 100M", "paper_300m": "the paper, 300M"}
ARENA = PAPER | {"paper": "the paper's Reviser, here", "ours": "our Reviser, here"}
EVALPPL = {
    "paper_gpt2_100m": "the paper by GPT-2 Large, 100M",
    "paper_gpt2_300m": "the paper by GPT-2 Large, 300M",
    "paper_dream_100m": "by Dream-7B, 100M",
    "paper_dream_300m": "by Dream-7B, 300M",
    "perplexity": "here by {evaluator}",
    "bits_per_byte": "bits/byte",
    "distinct_2": "distinct-2",
    "repeated_4": "repeated 4-grams",
    "bytes_per_text": "bytes a text",
}
LIKELIHOOD = {"order": "order", "samples": "samples", "bits_per_byte": "bits/byte", "is_exact": "is"}
GAPS = {
    "middle_bits_per_byte": "true middle, bits/byte",
    "ended_middle_bits_per_byte": "with its end",
    "middle": "given",
    "suffix_bits_per_byte": "suffix, bits/byte",
    "suffix_more_than_nothing": "more than after nothing",
    "exact_percent": "% exact, 1 to 3 words",
    "within_percent": "% half to twice as long",
    "length_quantiles": "length over the original's",
}
COSTS = {
    "paper_ratio": "the paper's ratio, worked out",
    "gmacs": "1e9 multiply-accumulates",
    "gmacs_per_byte_ratio": "ratio, a byte",
    "seconds": "seconds",
    "seconds_per_byte_ratio": "ratio of seconds, a byte",
    "precision": "in",
    "texts_timed": "texts timed",
}
TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "summary": ("Summary", SUMMARY),
    "differences": ("Differences on the same prompts", DIFFERENCES),
    "systems": ("The systems", MODELS),
    "arena": (
        "Arena, wins in percent with intervals of 95% (tab:arena_vs_ar_baseline, tab:ar_baselines_100m, "
        "tab:arena_vs_diffusion); here by {judge}",
        ARENA,
    ),
    "evalppl": ("evalPPL (tab:evalppl_vs_ar_baseline, tab:evalppl_vs_diffusion)", EVALPPL),
    "mauve": (
        "MAUVE (tab:mauve_all, by BERT's pseudo-log-likelihoods); here by {features}",
        PAPER | {"mauve": "here"},
    ),
    "likelihood": ("Likelihood of held-out text, bits per byte (not in the paper)", LIKELIHOOD),
    "gaps": ("Infilling (not in the paper); suffixes by {evaluator}", GAPS),
    "trajectories": ("How they edit (tab:trajectory_stats)", PAPER),
    "costs": ("The cost of a continuation (tab:prior_art_summary_main, app:diff_family_table_100m)", COSTS),
}
"""Title and columns of each table by its key, in the order in which they are shown."""
RUN = {"step": "step", "is_there": "is there", "why_not": "why not", "hardware": "on", "command": "command"}


def reproduction(document: Document) -> list[Table]:
    """The tables that a reproduction's rows name, and the commands that were run."""
    by = _Names(document.get("measured_by", {}))
    tables = [
        _table(key, list(rows), by, document) for key, rows in groupby(document["rows"], key=lambda row: row["table"])
    ]
    return tables + [tabulate("What was run", list(each), _cells(RUN)) for each in [document.get("commands")] if each]


def short_reproduction(document: Document) -> Table:
    """The summary with the columns that a reader needs first; the first table of one that has no summary."""
    rows = [row for row in document["rows"] if row["table"] == "summary"]
    if not rows:
        return reproduction(document)[0]
    kept = {"system", *SHORT_SUMMARY}
    return _table("summary", [{k: v for k, v in row.items() if k in kept} for row in rows], _Names(), document)


class _Names(dict[str, str]):
    """Who measured, for titles and headings; what is not known reads as a dash."""

    def __missing__(self, key: str) -> str:
        return NOTHING


def _table(key: str, rows: list[Row], by: Mapping[str, str], document: Document) -> Table:
    title, columns = TABLES[key]
    cells = _cells({name: heading.format_map(by) for name, heading in columns.items()})
    if key == "trajectories":
        return tabulate(title.format_map(by), rows, {"": _statistic, **cells, **_systems(rows)})
    if key == "likelihood":
        cells["is"] = lambda row: "exact" if row["is_exact"] else "a bound"
    if key == "gaps":
        cells |= {GAPS["middle"]: get("middle", describe_middle)}
        cells |= {GAPS["length_quantiles"]: get("length_quantiles", show_quantiles)}
    others = set(document.get("others", ()))
    is_by_steps = key not in ("systems", "likelihood")
    first: dict[str, Cell] = {
        "against" if key == "arena" else "system": lambda row: label(row["system"], others, is_by_steps)
    }
    return tabulate(title.format_map(by), rows, first | cells)


def _cells(columns: Mapping[str, str]) -> dict[str, Cell]:
    return {heading: get(key) for key, heading in columns.items()}


def label(name: str, others: set[str] | frozenset[str] = frozenset(), has_steps: bool = True) -> str:
    """
    >>> label("sedd-512"), label("mdlm"), label("mdlm", has_steps=False), label("mine")
    ('SEDD, 512 steps', 'MDLM, 128 steps', 'MDLM', 'mine')
    """
    first, _, steps = name.partition("-")
    if name in others or first not in SYSTEMS:
        return name
    return SYSTEMS[first] + (f", {steps or STEPS} steps" if first in DENOISERS and has_steps else "")


def _statistic(row: Row) -> str:
    title, form = next((title, form) for title, key, form in ROWS if key == row["statistic"])
    return title + ", %" * form.endswith("%}")


def _systems(rows: list[Row]) -> dict[str, Cell]:
    """A column for every system that a row of statistics has."""
    names = dict.fromkeys(name for row in rows for name in row["systems"])
    return {f"{SYSTEMS.get(name, name)}, here": _of_system(name) for name in names}


def _of_system(name: str) -> Cell:
    return lambda row: show_any(row["systems"].get(name))


TRAINING = {
    "system": "system",
    "order": "order",
    "recipe": "recipe",
    "positions": "positions",
    "continue_perplexity": "continue: ppl/token",
    "continue_bits_per_byte": "continue: bits/byte",
    "infill_perplexity": "infill: ppl/token",
    "infill_bits_per_byte": "infill: bits/byte",
}


def training(document: Document) -> list[Table]:
    """What trainings came to on held-out text."""
    return [tabulate("Trainings", document["rows"], _cells(TRAINING))]
