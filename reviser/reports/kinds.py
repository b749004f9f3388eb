"""Tables of what `reviser eval` measures, a function for each kind of result: the document in, tables out.

A kind without a function of its own gets one table of all its rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from reviser.orders.statistics import rows_of
from reviser.reports.results import Document
from reviser.reports.tables import (
    NOTHING,
    Bar,
    Bars,
    Cell,
    Point,
    Row,
    Scatter,
    Table,
    add_column,
    bar,
    get,
    is_measure,
    percent,
    show,
    show_any,
    tabulate,
)


def likelihood(document: Document) -> list[Table]:
    rows = document["rows"]
    has_several = len({row["system"] for row in rows}) < len(rows)
    bars = tuple(
        bar(
            f"{row['system']}, {_exactness(row)}" if has_several else row["system"],
            row["bits_per_byte"],
            bits_error(row),
        )
        for row in rows
    )
    columns: dict[str, Cell] = {
        "system": get("system"),
        "order": get("order"),
        "K": get("K"),
        "nats/token": lambda row: show(row["nats_per_token"], row.get("error")),
        "perplexity/token": lambda row: show(row["perplexity"], perplexity_error(row)),
        "bits/byte": lambda row: show(row["bits_per_byte"], bits_error(row)),
        "bits/byte more than the first's": get("more_than_first"),
        "nats/token of inserts": get("insert_nats_per_token"),
        "of the cursor": get("cursor_nats_per_token"),
        "of log q": lambda row: (
            show_any(row["log_q_per_token"]) if row.get("insert_nats_per_token") is not None else NOTHING
        ),
        "is": lambda row: "exact" if row["is_exact"] else "a bound",
        "texts": get("n"),
    }
    return [tabulate("Likelihood of held-out text", rows, columns, plot=Bars("bits per byte", bars))]


def _exactness(row: Row) -> str:
    return "exact" if row["is_exact"] else f"K = {row['K']}"


def bits_error(row: Row) -> float | None:
    """Of bits per byte; older results have it of nats per token alone, which is scaled."""
    own: float | None = row.get("bits_per_byte_error")
    error, nats = row.get("error"), row["nats_per_token"]
    if "bits_per_byte_error" in row or error is None or not nats:
        return own
    return float(row["bits_per_byte"] * error / nats)


def perplexity_error(row: Row) -> float | None:
    """To first order: exp grows by itself times the nats' error."""
    error = row.get("error")
    return None if error is None else row["perplexity"] * error


def evalppl(document: Document) -> list[Table]:
    """Two tables: how probable, and how varied; the second plots one against the other."""
    rows = document["rows"]
    probable: dict[str, Cell] = {
        "system": get("system"),
        "evalPPL": get("perplexity"),
        "over seeds": get("perplexity_over_seeds", _show_spread),
        "bits/byte": get("bits_per_byte"),
        "prompts": get("prompts"),
        "texts": get("texts"),
        "empty": get("empty"),
    }
    bars = tuple(_measure_bar(row["system"], row["perplexity"]) for row in rows if row.get("perplexity"))
    first = tabulate("How probable an evaluator finds the texts", rows, probable, plot=Bars("evalPPL", bars))
    second = tabulate("How varied they are", rows, VARIED, plot=_scatter(rows))
    return [first, second] if len(second.columns) > 1 else [first]


def _percent(share: Row) -> str:
    return percent(share["value"], share["error"])


def frontier(document: Document) -> list[Table]:
    """How far from the end insertions are made, and what that costs."""
    columns: dict[str, Cell] = {
        "system": get("system"),
        "insertions not at the end": get("not_at_end", _percent),
        "texts with a backward revision": get("revised", _percent),
        "bound, ppl/token": get("bound"),
        "ratio": get("bound_ratio"),
        "evalPPL": get("perplexity"),
        "ratio of evalPPL": get("perplexity_ratio"),
        "distinct-2": get("distinct_2"),
        "actions/token": get("actions_per_token"),
        "actions/byte": get("actions_per_byte"),
        "operations/byte": get("operations_per_byte"),
        "moves that turn back": get("turn_fraction", _percent),
    }
    rows = document["rows"]
    points = tuple(
        Point(
            row["system"], _measure_bar("not at the end", row["not_at_end"]),
            _measure_bar("ratio", row["perplexity_ratio"]),
        )
        for row in rows
        if row.get("not_at_end") and row.get("perplexity_ratio")
    )  # fmt: skip
    plot = Scatter(
        "what revision costs", "share of insertions not at the end", "evalPPL over the left-to-right one's", points
    )
    return [tabulate("How much is revised, and what it costs", rows, columns, plot=plot)]


VARIED: dict[str, Cell] = {
    "system": get("system"),
    "distinct-1": get("distinct_1"),
    "distinct-2": get("distinct_2"),
    "distinct-3": get("distinct_3"),
    "distinct-2 of all texts": get("pooled_distinct_2"),
    "entropy, bits": get("entropy_bits"),
    "longest repeat, words": get("longest_repeat"),
    "repeated 4-grams": get("repeated_4"),
    "words": get("words"),
    "over the reference": get("words_over_reference"),
    "stopped": get("stopped", _percent),
}


def _scatter(rows: Any) -> Scatter:
    both = [row for row in rows if row.get("perplexity") and row.get("distinct_2")]
    points = tuple(
        Point(
            row["system"], _measure_bar("distinct-2", row["distinct_2"]), _measure_bar("evalPPL", row["perplexity"])
        )
        for row in both
    )
    return Scatter("evalPPL against distinct-2", "distinct-2", "evalPPL", points)


def _measure_bar(label: str, measure: Row) -> Bar:
    return bar(label, measure["value"], measure.get("error"))


def _show_spread(spread: Row) -> str:
    """A mean over runs with their standard deviation, which is no error."""
    if spread["deviation"] is None:
        return NOTHING
    return f"{show(spread['mean'], spread['deviation']).replace('±', 'sd')} (n {spread['n']})"


def metrics(document: Document) -> list[Table]:
    """Registered metrics, under the headings that they were registered with."""
    rows, headings = document["rows"], document.get("columns", {})
    keys = dict.fromkeys(key for row in rows for key in row if key not in ("system", "texts"))
    columns: dict[str, Cell] = {"system": get("system"), "texts": get("texts")}
    for key in keys:
        add_column(columns, headings.get(key, key.replace("_", " ")), key)
    return [tabulate("Metrics of the texts", rows, columns)]


def mauve(document: Document) -> list[Table]:
    rows = document["rows"]
    columns: dict[str, Cell] = {
        "system": get("system"),
        "MAUVE": get("mauve"),
        "over seeds": get("mauve_over_seeds", _show_spread),
        "over clusterings": get("mauve_over_clusterings", _show_spread),
        "texts a seed": get("texts"),
        "references": get("references"),
        "empty": get("empty"),
        "clusters": get("clusters"),
    }
    bars = tuple(_measure_bar(row["system"], row["mauve"]) for row in rows)
    return [tabulate("Likeness to the references", rows, columns, plot=Bars("MAUVE", bars, most=1.0))]


def arena(document: Document) -> list[Table]:
    rows = document["rows"]
    columns: dict[str, Cell] = {
        "system": get("system"),
        "opponent": get("opponent"),
        "won": get("wins"),
        "tied": get("ties"),
        "lost": get("losses"),
        "win rate": get("win_rate", _percent),
        "95% interval": get("win_rate", _interval),
        "prompts": get("win_rate", lambda share: show(share["n"])),
    }
    bars = tuple(_win_bar(row) for row in rows if row["win_rate"] is not None)
    plot = Bars("win rates with their intervals of 95%", bars, most=1.0, mark=0.5)
    strengths: dict[str, Cell] = {
        "system": get("system"),
        "strength, nats": lambda row: show(row["strength"], row["error"]),
        "group": get("group"),
    }
    notes = _arena_notes(document)
    tables = [tabulate("Who won", rows, columns, notes, plot)]
    if document.get("strengths"):
        groups = {row["group"] for row in document["strengths"]}
        apart = ["strengths of two groups do not compare: they never met, or one took every point"]
        notes = apart if len(groups) > 1 else []
        tables.append(tabulate("Bradley-Terry strengths", document["strengths"], strengths, notes))
    return tables


def _win_bar(row: Row) -> Bar:
    share = row["win_rate"]
    label = f"{row['system']} over {row['opponent']}"
    return Bar(label, share["value"], f"{percent(share['value'])}, {_interval(share)}", share["low"], share["high"])


def _interval(share: Row) -> str:
    return f"{percent(share['low'])} to {percent(share['high'])}"


def _arena_notes(document: Document) -> list[str]:
    notes = []
    for key, text in (("position_bias", "the text shown first won"), ("agreement", "both orders agree in")):
        if share := document.get(key):
            notes.append(f"{text} {percent(share['value'])} ({_interval(share)}, {share['n']} prompts)")
    if document.get("empty"):
        notes.append(f"decided without the judge, by an empty text: {document['empty']}")
    if document.get("failed") or document.get("unanswered"):
        notes.append(f"not counted: {document.get('failed')} failed, {document.get('unanswered')} unanswered")
    return notes + [f"{one} and {other} never met" for one, other in document.get("never_met", ())]


def generations(document: Document) -> list[Table]:
    columns: dict[str, Cell] = {
        "system": get("system"),
        "texts": get("generations"),
        "empty": get("empty"),
        "stopped": get("stopped_share", percent),
        "characters": get("mean_characters"),
        "of the references": get("mean_reference_characters"),
        "actions": get("mean_actions"),
    }
    return [tabulate("What systems wrote", document["rows"], columns)]


def trajectories(document: Document) -> list[Table]:
    """Systems side by side, each before what its order alone gives."""
    columns: dict[str, Row] = {}
    for row in document["rows"]:
        columns[row["system"]] = row["statistics"]
        if row["null"] is not None:
            columns[f"{row.get('order') or 'the order'} alone, at the lengths of {row['system']}"] = row["null"]
    cells: dict[str, Cell] = {"": lambda line: line[0]}
    cells |= {name: _statistic(values) for name, values in columns.items()}
    notes = [
        f"{row['system']}: {percent(row['stopped_share'])} stopped by themselves, "
        f"{show(row['length_ratio'])} times as long as the references"
        for row in document["rows"]
    ]
    return [tabulate("How systems edited", rows_of(columns.values()), cells, notes)]


def _statistic(values: Row) -> Cell:
    return lambda line: _show_statistic(values.get(line[1]), line[2])


def _show_statistic(value: Any, form: str) -> str:
    if isinstance(value, Mapping):
        return ", ".join(_show_statistic(part, form) for part in value.values())
    return NOTHING if value is None else form.format(value)


def flops(document: Document) -> list[Table]:
    """A table for each group; parts where the rows have them."""
    parts = dict.fromkeys(key for row in document["rows"] for key in row if key.endswith("_gmacs"))
    columns: dict[str, Cell] = {
        "method": get("method"),
        "variant": get("variant"),
        "GMACs": lambda row: show(row["gmacs"]),
        "ratio": lambda row: show(row["ratio"]),
    }
    for key in parts:
        add_column(columns, key.removesuffix("_gmacs"), key)
    groups = groupby(document["rows"], key=lambda row: row["group"])
    return [tabulate(f"Cost: {group}", list(rows), columns) for group, rows in groups]


def generic(document: Document) -> list[Table]:
    """All that the rows hold."""
    return [_all_columns(str(document["kind"]).replace("_", " "), list(document["rows"]))]


def _all_columns(title: str, rows: list[Row]) -> Table:
    """Measures as one column, other objects as one for each of their fields."""
    flat = [_flatten(row) for row in rows]
    keys = dict.fromkeys(key for row in flat for key in row)
    columns: dict[str, Cell] = {}
    for key in keys:
        add_column(columns, key.replace("_", " "), key)
    return tabulate(title, flat, columns)


def _flatten(row: Row, before: str = "") -> dict[str, Any]:
    """
    >>> _flatten({"a": {"b": 1, "c": {"value": 2, "error": 0.1}}, "d": True})
    {'a b': 1, 'a c': {'value': 2, 'error': 0.1}, 'd': True}
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and not is_measure(value):
            flat |= _flatten(value, f"{before}{key} ")
        else:
            flat[f"{before}{key}"] = value
    return flat


HOW = ("config", "seed", "command", "reviser", "commit", "hardware", "date")
"""What every result says of itself; stands last."""
SHARED = ("format", "version", "checksum", "kind", "columns", "measured_by", "others")
"""What the tables show already, or every result has."""
OBJECTS = ("evaluator", "texts", "generations", "config")
"""Fields that may be objects and are no data."""
HASH = re.compile(r"\b([0-9a-f]{7})[0-9a-f]{33}\b")


def about(document: Document) -> dict[str, str]:
    """How a result came about: its texts, numbers and settings beside the rows."""
    keys = [key for key in document if key not in HOW and key not in SHARED]
    found = {key: document[key] for key in (*keys, *HOW) if document.get(key) is not None}
    told = {key: _setting(value) for key, value in found.items() if key in OBJECTS or not _is_data(value)}
    if "commit" in told:
        told["commit"] = HASH.sub(r"\1", told["commit"])
    return told


def _is_data(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def _setting(value: Any) -> str:
    """
    >>> _setting({"job": "infill", "gap": [8, 48], "model": {"width": 512, "dropout": 0.1}})
    'job infill, gap [8, 48], model width 512, model dropout 0.1'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_setting(part)}" for key, part in _flatten(value).items())
    if isinstance(value, list):
        return f"[{', '.join(map(_setting, value))}]"
    return show_any(value) if value is None or isinstance(value, str | bool) else str(value)
