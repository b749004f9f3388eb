"""Text that is there on every machine: this package's own source, as a data folder for the recipe `debug`."""

from __future__ import annotations

import json
from pathlib import Path

from reviser.data.corpus import prepare
from reviser.errors import ConfigError
from reviser.tokenizer import load

TOKENIZER = "bytes"


def prepare_own_source(folder: Path) -> Path:
    """A data folder of this package's definitions, each a document; the text itself is source.jsonl beside it."""
    texts = [path.read_text("utf8") for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    lines = [json.dumps({"text": part}) for text in texts for part in text.split("\n\n\n")]
    source = folder.parent / "source.jsonl"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("\n".join(lines) + "\n", "utf8")
    except OSError as error:
        raise ConfigError(f"cannot write {source}: {error.strerror}; choose another folder") from None
    prepare([str(source)], folder, load(TOKENIZER), holdout=0.1, workers=1)
    return folder
