"""The model card of a model folder: a config in, README.md out.

It says what the config says and no more; what the weights were trained on is for `notes`.
"""

from __future__ import annotations

from reviser.config import ModelConfig
from reviser.model.size import num_parameters

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

CANVAS = {
    "none": "nothing but its history of actions",
    "window": "{window} tokens on each side of the cursor, added to its input",
    "pool": "the whole canvas, pooled to one vector and added to its input",
    "cross": "the whole canvas, pooled to one vector, in its layers",
    "cross-window": "{window} tokens on each side of the cursor, by attention in its layers",
}


def model_card(config: ModelConfig, sha256: str | None, missing_tokenizer: str | None, notes: str) -> str:
    rows = {
        "parameters": f"{num_parameters(config):,}",
        "layers, width, heads": f"{config.num_layers}, {config.width}, {config.num_heads}",
        "MLP": f"{config.ff_width} units, {config.activation}",
        "norm": {"layer": "LayerNorm", "rms": "RMSNorm"}[config.norm],
        "positions": f"{config.positions}, at most {config.context} with START",
        "canvas": f"at most {config.max_length} tokens",
        "sees": CANVAS[config.canvas.kind].format(window=config.canvas.window),
        "actions": ", ".join(["insert", "stop", *config.operators]),
        "text tokens": f"{config.num_text:,}",
        "tokenizer": _tokenizer(sha256, missing_tokenizer),
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
    return "\n".join([HEAD, table, *(["", notes.strip()] if notes.strip() else []), ""])


def _tokenizer(sha256: str | None, missing: str | None) -> str:
    if sha256 is not None:
        return f"tokenizer.json, sha256 {sha256}"
    if missing is not None:
        return f"missing: it is `{missing}`; put its tokenizer.json here, or install it"
    return "missing"
