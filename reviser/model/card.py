"""The model card of a model folder: its config.json in, the text of README.md out. Nothing else is read.

`rows` is the card's table, which `reviser info` shows too.
"""

from __future__ import annotations

from reviser.config import ModelConfig
from reviser.model.canvas_kinds import describe
from reviser.model.folder import FORMAT, FolderConfig, HeldoutBound, Trained

HEAD = """---
library_name: reviser
pipeline_tag: text-generation
---
# A model that writes by editing

It reads the history of its own edit actions and scores the next one: insert a token at the cursor, move the
cursor, stop. An executor applies each action to a canvas; the last canvas is the text.

```python
from reviser.model.checkpoint import from_pretrained

model = from_pretrained("path/of/this/folder")
```
"""

WEIGHTS = {
    "float32": "float32",
    "bf16": "matrices in bfloat16",
    "int8": "matrices in int8, a scale for each row",
}

CODE = ("order", "jobs", "recipe")
"""Rows whose text Markdown would take for markup."""


def model_card(described: FolderConfig, num_parameters: int) -> str:
    found = rows(described, num_parameters)
    table = [f"| {name} | {f'`{value}`' if name in CODE else value} |" for name, value in found.items()]
    notes = ["", described.notes] if described.notes else []
    return "\n".join([HEAD, "| | |", "|---|---|", *table, *notes, ""])


def rows(described: FolderConfig, num_parameters: int) -> dict[str, str]:
    """What a model folder says of itself, by name."""
    config = described.model
    found = {
        "parameters": f"{num_parameters:,}",
        "weights": WEIGHTS[described.weights],
        "layers, width, heads": f"{config.num_layers}, {config.width}, {config.num_heads}",
        "MLP": f"{config.ff_width} units, {config.activation}",
        "norm": {"layer": "LayerNorm", "rms": "RMSNorm"}[config.norm],
        **(_editing(config) if described.format == FORMAT else _denoising(config)),
        "text tokens": f"{config.num_text:,}",
        "tokenizer": _tokenizer(described.tokenizer_sha256, described.missing_tokenizer),
    }
    return found if described.trained is None else found | _training(described.trained)


def _editing(config: ModelConfig) -> dict[str, str]:
    return {
        "positions": f"{config.positions}, at most {config.context} with START",
        "canvas": f"at most {config.max_length} tokens",
        "sees": describe(config),
        "actions": ", ".join(["insert", "stop", *config.operators]),
    }


def _denoising(config: ModelConfig) -> dict[str, str]:
    return {
        "positions": f"{config.positions}, canvases of at most {config.context}",
        "sees": "the whole canvas, some of it masked",
    }


def _training(trained: Trained) -> dict[str, str]:
    return {
        "order": trained.order,
        "jobs": trained.jobs,
        "recipe": f"reviser train {trained.recipe}",
        "data": f"sha256 {trained.data_sha256}",
        "trained for": f"{trained.steps:,} steps, {trained.positions:,} positions{_before(trained)}",
    } | {f"held-out text, {bound.job}": _bound(bound) for bound in trained.bounds}


def _before(trained: Trained) -> str:
    return ", after those of the model in train.init" if "train.init=" in trained.recipe else ""


def _bound(bound: HeldoutBound) -> str:
    error = "-" if bound.error is None else f"{bound.error:.4f}"
    nats = f"{bound.nats_per_token:.4f} ± {error} nats a token"
    return f"at most {nats}, {bound.bits_per_byte:.4f} bits a byte"


def _tokenizer(sha256: str | None, missing: str | None) -> str:
    if sha256 is not None:
        return f"tokenizer.json, sha256 {sha256}"
    if missing is not None:
        return f"missing: it is `{missing}`; put its tokenizer.json here, or install it"
    return "missing"
