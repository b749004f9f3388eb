"""Tables of results that training and `reviser bench` gave: orders, and the speed of training, decoding, drawing and
serving."""

from __future__ import annotations

from reviser.reports.results import Document
from reviser.reports.tables import NOTHING, Bars, Cell, Row, Table, bar, get, percent, show, tabulate


def orders(document: Document) -> list[Table]:
    rows = document["rows"]
    bars = tuple(bar(row["name"], row["bits_per_byte"], _error(row, row["bits_per_byte"])) for row in rows)
    columns: dict[str, Cell] = {
        "name": get("name"),
        **ORDERS,
        "nats/token": lambda row: show(row["nats_per_token"], row["standard_error_nats"]),
        "last training loss, nats": get("last_loss_nats"),
        "commit": get("commit", _first_word),
    }
    notes = [text for text in dict.fromkeys(row.get("commit", "") for row in rows) if text != _first_word(text)]
    tables = [tabulate("Orders and canvases", rows, columns, notes, Bars("bits per byte", bars))]
    if cost := document.get("cost"):
        tables.append(tabulate("Speed of each canvas", [{"canvas": key, **cost[key]} for key in cost], COST))
    return tables


def _first_word(text: str) -> str:
    return text.partition(" ")[0]


def _order(row: Row) -> str:
    """The order, and what else was not as in the other rows."""
    others = {
        "optimizer": "Muon", "muon_lr": f"at {row.get('muon_lr')}", "activation": str(row.get("activation")),
        "steps": f"{row.get('steps')} steps", "masked": "unmasked loss",
    }  # fmt: skip
    return ", ".join([row["order"], *(text for key, text in others.items() if key in row)])


def _canvas(row: Row) -> str:
    """
    >>> _canvas({"canvas": "window 4+4"}), _canvas({"canvas": "cross-window 4+4"}), _canvas({"canvas": "none"})
    ('4 + 4 tokens beside the cursor', 'cross-window of 4 + 4 tokens', 'none')
    """
    kind, _, size = row["canvas"].partition(" ")
    size = size.replace("+", " + ")
    if kind == "window":
        return f"{size} tokens beside the cursor"
    return f"{kind} of {size} tokens" if size else str(kind)


def _error(row: Row, value: float) -> float:
    """Of bits per byte, which are nats per token times a constant of the texts."""
    return float(value * row["standard_error_nats"] / row["nats_per_token"])


def _bound(row: Row) -> str:
    text = show(row["bound_perplexity"], row["bound_perplexity"] * row["standard_error_nats"])
    return f"{text} (exact)" if row["order"] == "left-to-right" else text


ORDERS: dict[str, Cell] = {
    "order": _order,
    "canvas shown to the model": _canvas,
    "bound, ppl/token": _bound,
    "bits/byte": lambda row: show(row["bits_per_byte"], _error(row, row["bits_per_byte"])),
}
COST: dict[str, Cell] = {
    "canvas": get("canvas"),
    "positions/s": get("positions_per_s"),
    "step, ms": get("step_s", lambda seconds: show(1e3 * seconds)),
    "memory, GiB": get("memory_gib"),
}

SHORT_ORDERS = {
    "left-to-right": "left-to-right",
    "paper": "random-walk (the paper)",
    "paper+window": "random-walk",
    "end": "runs:jump=0.05,start=end",
    "end+window": "runs:jump=0.05,start=end",
    "end+window-muon": "the same, Muon instead of AdamW",
    "mixed jump rates, Muon": "left-to-right and jumps of 0.01 to 0.05 mixed, Muon",
    "left-to-right, Muon": "left-to-right, Muon",
}
"""Rows for a table of a few lines, and what their order is called there."""


def short_orders(document: Document) -> Table:
    named = {row["name"]: row for row in document["rows"]}
    rows = [named[name] for name in SHORT_ORDERS]
    return tabulate("Orders", rows, ORDERS | {"order": lambda row: SHORT_ORDERS[row["name"]]})


def train_speed(document: Document) -> list[Table]:
    columns: dict[str, Cell] = {
        "recipe": get("recipe"),
        "context": get("context"),
        "positions a step": get("positions_per_step"),
        "positions/s": lambda row: show(row["ours"]["positions_per_s"]),
        "plain loop, positions/s": _plain("positions_per_s", show),
        "ours over plain": get("ratio"),
        "step over one with MOVEs": get("step_over_moving"),
        "share of peak": lambda row: percent(row["ours"].get("nominal_peak_share")),
        "plain loop, share of peak": _plain("peak_share", percent),
        "memory, GiB": lambda row: show(row["ours"].get("memory_gib")),
    }
    notes = []
    if before := document.get("before"):
        ratios = ", ".join(map(show, before["ratios"]))
        notes.append(f"before, with {before['what']}: {ratios} times the plain loop (commit {before['commit']})")
    return [tabulate("Speed of training", document["rows"], columns, notes)]


def _plain(key: str, cell: Cell) -> Cell:
    return lambda row: cell(row["plain"][key]) if row.get("plain") else NOTHING


DECODE: dict[str, Cell] = {
    "batch": get("batch"),
    "kind of step": get("step"),
    "actions/s": lambda row: show(row["ours_actions_per_s"]),
    "bare loop, actions/s": get("bare_actions_per_s"),
    "transformers, tokens/s": get("transformers_tokens_per_s"),
    "time over a bare loop's": get("ours_over_bare_time"),
    "step, ms": get("ours_step_ms"),
    "over a bare step": get("ours_over_bare_step"),
    "over a step with MOVEs": get("ours_over_moving_step"),
    "over transformers": get("ours_over_transformers"),
    "share of bandwidth": get("bandwidth_share", percent),
    "memory a sequence, MiB": get("memory_per_sequence_mib"),
    "run": get("run"),
}


def decode(document: Document) -> list[Table]:
    parts = {"rows": "Speed of decoding", "rows_512": "The same with 512 actions"}
    return [tabulate(title, document[key], DECODE) for key, title in parts.items() if key in document]


def trajectory_speed(document: Document) -> list[Table]:
    rows = document["rows"]
    names = dict.fromkeys(name for row in rows for name in row["orders"])
    columns: dict[str, Cell] = {"threads": get("threads"), **{name: _millions(name) for name in names}}
    return [tabulate("Speed of drawing, actions a second", rows, columns)]


def _millions(order: str) -> Cell:
    return lambda row: f"{row['orders'][order]['actions_per_s'] / 1e6:,.1f} million"


CLIENTS: dict[str, Cell] = {
    "client": get("kind"),
    "sent": get("sent"),
    "answered": get("done"),
    "left by itself": get("left"),
    "refused": get("refused"),
    "lost": get("lost"),
    "wrong text": get("wrong"),
    "seconds, median": lambda row: _share(row, "seconds", "p50"),
    "99th of 100": lambda row: _share(row, "seconds", "p99"),
}


def _share(row: Row, key: str, name: str, scale: float = 1.0) -> str:
    return show(scale * row[key][name]) if row.get(key) else NOTHING


def serve_load(document: Document) -> list[Table]:
    server, throughput = document["server"], document.get("throughput")
    facts = {
        "seconds under load": show(server["seconds"]),
        "requests": show(server["requests"]),
        "first action, ms: median, 99th of 100": _pair(server, "first_action_s"),
        "between two actions, ms: median, 99th of 100": _pair(server, "gap_s"),
        "memory in the second fifth, MiB": show(server["memory_second_fifth_mib"]),
        "memory in the last fifth, MiB": show(server["memory_last_fifth_mib"]),
        "descriptors before and after": f"{show(server['descriptors_before'])}, {show(server['descriptors_after'])}",
        "rows busy after": show(server["rows_busy"]),
        "requests left after": show(server["requests_left"]),
    }
    columns: dict[str, Cell] = {"of the server": lambda fact: fact[0], "value": lambda fact: fact[1]}
    tables = [
        tabulate("Clients of a server under load", document["rows"], CLIENTS, document["problems"]),
        tabulate("The server under load", list(facts.items()), columns),
    ]
    if throughput:
        rows = [{"endpoint": path, **throughput[job]} for job, path in ENDPOINTS.items()]
        note = f"{throughput['texts']} texts, {throughput['streams']} streams, batches of {throughput['rows']}"
        tables.append(tabulate("Speed of serving", rows, SERVING, [note]))
    return tables


ENDPOINTS = {"complete": "/v1/completions", "watch": "/v1/trajectories"}
SERVING: dict[str, Cell] = {
    "endpoint": get("endpoint"),
    "server, tokens/s": get("server_tokens_per_s"),
    "bare engine, tokens/s": get("engine_tokens_per_s"),
    "server over engine": get("ratio"),
}


def _pair(row: Row, key: str) -> str:
    return f"{_share(row, key, 'p50', 1e3)}, {_share(row, key, 'p99', 1e3)}"


CHECKS: dict[str, Cell] = {
    "text": get("text"),
    "words": get("words"),
    "ours over HTTP, ms": lambda row: _share(row, "reviser_ms", "p50"),
    "the first time": lambda row: _share(row, "reviser_ms", "first"),
    "Harper, ms": lambda row: _share(row, "harper_ms", "p50"),
    "Harper the first time": lambda row: _share(row, "harper_ms", "first"),
}


def check_time(document: Document) -> list[Table]:
    return [tabulate("Time to proofread", document["rows"], CHECKS)]
