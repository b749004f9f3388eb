"""A reproduction's results beside the paper's: a folder of results in, rows of tables out.

    table       which table a row belongs to: summary, differences, systems, arena, ...
    system      and then stable keys: a number, a measure with its error, or nothing

What was not measured is left out, and so is a table of which nothing was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reviser.diffusion.denoiser import FAMILIES
from reviser.diffusion.denoiser import num_parameters as num_denoising
from reviser.evaluation.evaluator import hash_weights
from reviser.evaluation.measures import difference
from reviser.evaluation.metrics.editing import measure
from reviser.evaluation.metrics.frontier import perplexity_ratio, ratio
from reviser.evaluation.metrics.gaps import NOTHING
from reviser.evaluation.texts import REFERENCE, read_texts
from reviser.model.folder import FORMATS, WEIGHTS, find, read_config
from reviser.model.transformer import num_parameters
from reviser.orders.statistics import ROWS
from reviser.paper import printed as paper
from reviser.paper.setup import SYSTEMS, Setup, writers
from reviser.reports.kinds import bits_error

Row = dict[str, Any]


def gather(setup: Setup) -> list[Row]:
    """All tables that the folder's results give."""
    makers = (summary, differences, systems, arena, evalppl, mauve, likelihood, gaps, trajectories, costs)
    return [row for make in makers for row in make(setup)]


def summary(setup: Setup) -> list[Row]:
    """A row a system, the most telling number of each table."""
    found = {name: _rows(setup, name) for name in ("evalppl", "mauve", "gaps", "flops", "seconds")}
    bounds, arena = _rows(setup, "likelihood"), _read(setup, "arena")
    rates = {(row["system"], row["opponent"]): row["win_rate"] for row in arena["rows"]}
    rows = []
    for name in (*grouped(setup), REFERENCE, NOTHING):
        bound = bounds.get(name if name in setup.others else name.partition("-")[0])
        texts, filled, edits = found["evalppl"].get(name, {}), found["gaps"].get(name, {}), _edits(setup, name)
        cells = {
            "bits_per_byte": bound and _bits(bound),
            "perplexity": texts.get("perplexity"),
            "distinct_2": texts.get("distinct_2"),
            "bytes_per_text": _bytes_a_text(texts),
            "mauve": found["mauve"].get(name, {}).get("mauve"),
            "win_percent": None if name == "ar" else win_rate(rates, name, "ar"),
            "middle_bits_per_byte": filled.get("middle_bits_per_byte"),
            "suffix_bits_per_byte": filled.get("suffix_bits_per_byte"),
            "exact_percent": _scaled(filled.get("exact_match"), 100),
            "within_percent": _scaled(filled.get("within_half_and_twice"), 100),
            "non_end_percent": edits and _scaled(edits["non_end_append_fraction"], 100),
            "gmacs": found["flops"].get(name, {}).get("gmacs"),
            "seconds": found["seconds"].get(name, {}).get("seconds"),
        }
        if any(cell is not None for cell in cells.values()):
            rows.append({"table": "summary", "system": name} | cells)
    return rows


def differences(setup: Setup) -> list[Row]:
    """How each differs from the left-to-right model, and what follows its gaps from what follows empty ones.

    All have the errors of the prompts' own differences; results that do not say what each prompt gave are left out.
    """
    texts, filled, bounds = (
        {name: row for name, row in _rows(setup, kind).items() if "by_prompt" in row}
        for kind in ("evalppl", "gaps", "likelihood")
    )
    rows = []
    for name in grouped(setup):
        bound = bounds.get(name if name in setup.others else name.partition("-")[0])
        own, base, gap, empty = texts.get(name), texts.get("ar"), filled.get(name), filled.get(NOTHING)
        cells = {
            "bits_per_byte_more": _more(bound, bounds.get("ar"), "bits_per_byte"),
            "perplexity_ratio": perplexity_ratio(own, base) if own and base else None,
            "middle_bits_per_byte_more": _more(gap, filled.get("ar"), "middle_bits_per_byte"),
            "suffix_bits_per_byte_more": _more(gap, empty, "suffix_bits_per_byte"),
        }
        if any(cell is not None for cell in cells.values()):
            rows.append({"table": "differences", "system": name} | cells)
    return rows


def _more(row: Row | None, other: Row | None, key: str) -> Row | None:
    """What a row has more than another, over the prompts of both."""
    if row is None or other is None:
        return None
    found = difference(row["by_prompt"].get(key, {}), other["by_prompt"].get(key, {}))
    return asdict(found) if found else None


def _bits(row: Row) -> Row:
    """A likelihood's bits per byte as a measure."""
    return {"value": row["bits_per_byte"], "error": bits_error(row), "n": row["n"]}


def _bytes_a_text(row: Row) -> float | None:
    return row["bytes"] / row["texts"] if row.get("texts") else None


def grouped(setup: Setup) -> list[str]:
    """All writers, a system's numbers of steps beside each other.

    >>> from pathlib import Path
    >>> from reviser.paper.setup import SCALES
    >>> grouped(Setup(SCALES["debug"], Path()))[3:6]
    ['mdlm', 'mdlm-512', 'mdlm-1024']
    """
    places = {system: place for place, system in enumerate(SYSTEMS)}
    return sorted(writers(setup), key=lambda name: places.get(name.partition("-")[0], len(places)))


def _edits(setup: Setup, name: str) -> Row | None:
    """How a system edits, where it does and has written."""
    if not setup.written("continuation", name).is_file():
        return None
    texts = read_texts([setup.written("continuation", name)], setup.num_prompts)
    return measure(texts, name) if any(each.record for each in texts) else None


def systems(setup: Setup) -> list[Row]:
    """What was compared: sizes and trained positions, to see that they are equal."""
    rows, bounds = [], _rows(setup, "likelihood")
    for name, folder in ((name, setup.model(name)) for name in setup.folders):
        if not folder.is_dir():
            continue
        found = read_config(find(folder), FORMATS)
        is_denoiser = found.format in FAMILIES
        count = num_denoising(found.format, found.model) if is_denoiser else num_parameters(found.model)
        row: Row = {"table": "systems", "system": name, "parameters": count}
        if (trained := found.trained) is not None:
            row |= {"trained_positions": trained.positions, "recipe": trained.recipe, "order": trained.order}
            row |= {"data": trained.data_sha256[:12]}
        # Weights need not be here any more when what they were needed for is measured.
        is_here = (find(folder) / WEIGHTS).is_file()
        weights = bounds.get(name, {}).get("weights_sha256") or (hash_weights(find(folder)) if is_here else "")
        rows.append(row | {"model": str(folder), "weights": weights[:12] or None})
    return rows


def _read(setup: Setup, name: str) -> dict[str, Any]:
    path = setup.result(name)
    return json.loads(path.read_text("utf-8")) if path.is_file() else {"rows": []}


def _rows(setup: Setup, name: str) -> dict[str, Row]:
    """The rows of a measurement, which one result holds or one for each system; references and the like come last."""
    documents = [_read(setup, name), *(_read(setup, f"{name}_{each}") for each in writers(setup))]
    known = (*writers(setup), REFERENCE, NOTHING)
    found = {row["system"]: row for document in documents for row in document["rows"] if row["system"] in known}
    return dict(sorted(found.items(), key=lambda item: item[0] in (REFERENCE, NOTHING)))


def arena(setup: Setup) -> list[Row]:
    """How often a judge preferred each Reviser to each other system."""
    document = _read(setup, "arena")
    rates = {(row["system"], row["opponent"]): row["win_rate"] for row in document["rows"] if row["win_rate"]}
    if not rates:
        return []
    rows = []
    for name in grouped(setup):
        if name != "ours":
            row: Row = {"table": "arena", "system": name} | _paper_pair(paper.ARENA.get(name))
            for reviser in ("paper", "ours"):
                if reviser != name:
                    row[reviser] = win_rate(rates, reviser, name)
            rows.append(row)
    return rows


def win_rate(rates: Mapping[tuple[str, str], Row], one: str, other: str) -> Row | None:
    """Percent that the first won and its interval, whichever of the two the judgments were counted for.

    >>> share = {"value": 0.75, "low": 0.5, "high": 1.0, "error": 0.1, "n": 8}
    >>> win_rate({("a", "b"): share}, "b", "a")
    {'value': 25.0, 'low': 0.0, 'high': 50.0, 'n': 8}
    """
    if share := rates.get((one, other)):
        value, low, high = share["value"], share["low"], share["high"]
    elif share := rates.get((other, one)):
        value, low, high = 1 - share["value"], 1 - share["high"], 1 - share["low"]
    else:
        return None
    return {"value": 100 * value, "low": 100 * low, "high": 100 * high, "n": share["n"]}


def _paper_pair(numbers: Sequence[Any] | None, what: str = "paper") -> Row:
    first, second = numbers or (None, None)
    return {f"{what}_100m": first, f"{what}_300m": second}


def evalppl(setup: Setup) -> list[Row]:
    rows = []
    for name, row in _rows(setup, "evalppl").items():
        printed = paper.EVALPPL.get(name, (None,) * 4)
        rows.append(
            {"table": "evalppl", "system": name}
            | _paper_pair(printed[:2], "paper_gpt2")
            | _paper_pair(printed[2:], "paper_dream")
            | {key: row.get(key) for key in ("perplexity", "bits_per_byte", "distinct_2", "repeated_4")}
            | {"bytes_per_text": _bytes_a_text(row)}
        )
    return rows


def mauve(setup: Setup) -> list[Row]:
    return [
        {"table": "mauve", "system": name} | _paper_pair(paper.MAUVE.get(name)) | {"mauve": row["mauve"]}
        for name, row in _rows(setup, "mauve").items()
    ]


def measured_by(setup: Setup) -> dict[str, str]:
    """Who scored, judged and made features of what is there, for the headings of tables."""
    texts, features, judged = (_read(setup, name) for name in ("evalppl", "mauve", "arena"))
    found = {}
    if "evaluator" in texts:
        found["evaluator"] = texts["evaluator"]["name"]
    if "evaluator" in features:
        found["features"] = f"{features['config']['features']}:{features['evaluator']['name']}"
    if "config" in judged:
        found["judge"] = judged["config"]["judge"]
    return found


def likelihood(setup: Setup) -> list[Row]:
    return [
        {
            "table": "likelihood",
            "system": name,
            "order": row["order"],
            "samples": row["K"],
            "bits_per_byte": _bits(row),
            "is_exact": row["is_exact"],
        }
        for name, row in _rows(setup, "likelihood").items()
    ]


def gaps(setup: Setup) -> list[Row]:
    keys = (
        "middle_bits_per_byte", "ended_middle_bits_per_byte", "middle", "suffix_bits_per_byte",
        "suffix_more_than_nothing", "length_quantiles",
    )  # fmt: skip
    return [
        {"table": "gaps", "system": name}
        | {key: row.get(key) for key in keys}
        | {"exact_percent": _scaled(row.get("exact_match"), 100)}
        | {"within_percent": _scaled(row.get("within_half_and_twice"), 100)}
        for name, row in _rows(setup, "gaps").items()
    ]


def trajectories(setup: Setup) -> list[Row]:
    """The ten rows of the paper, with errors over prompts where a number is one sum over another."""
    if not setup.result("trajectories").is_file():
        return []
    written = [name for name in setup.editing if setup.written("continuation", name).is_file()]
    found = {name: _statistics(setup, name) for name in written if name != "ar"}
    rows = []
    for _, key, form in ROWS:
        if key in paper.TRAJECTORIES:
            scale = 100 if form.endswith("%}") else 1
            row: Row = {"table": "trajectories", "statistic": key} | _paper_pair(paper.TRAJECTORIES[key])
            rows.append(row | {"systems": {name: _scaled(values[key], scale) for name, values in found.items()}})
    return rows


def _scaled(value: Any, scale: float) -> Any:
    """A number, a measure with its error, or several numbers as one text, times a scale."""
    if not isinstance(value, Mapping):
        return None if value is None else scale * value
    if "error" not in value:
        return ", ".join("-" if part is None else f"{scale * part:.1f}" for part in value.values())
    return {**value, "value": scale * value["value"], "error": value["error"] and scale * value["error"]}


def _statistics(setup: Setup, name: str) -> Row:
    return measure(read_texts([setup.written("continuation", name)], setup.num_prompts), name)


def costs(setup: Setup) -> list[Row]:
    """Multiply-accumulates and seconds of a continuation, and how many times the left-to-right model's a byte."""
    macs, seconds = _rows(setup, "flops"), _rows(setup, "seconds")
    return [
        {
            "table": "costs",
            "system": name,
            "paper_ratio": paper.COSTS.get(name),
            "gmacs": macs.get(name, {}).get("gmacs"),
            "gmacs_per_byte_ratio": _ratio(macs, name, "gmacs_per_byte"),
            "seconds": seconds.get(name, {}).get("seconds"),
            "seconds_per_byte_ratio": _ratio(seconds, name, "seconds_per_byte"),
            "precision": seconds.get(name, {}).get("precision"),
            "texts_timed": seconds.get(name, {}).get("seconds", {}).get("n"),
        }
        for name in grouped(setup)
        if name in macs or name in seconds
    ]


def _ratio(rows: Mapping[str, Row], name: str, key: str) -> Row | None:
    """To the left-to-right model."""
    if any(key not in rows.get(each, {}) for each in (name, "ar")):
        return None
    return ratio(rows[name][key], None if name == "ar" else rows["ar"][key])
