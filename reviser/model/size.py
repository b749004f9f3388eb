"""How large a model is and what a position costs, from its config alone.

>>> config = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=256, context=99)
>>> num_parameters(config)
117376
"""

from __future__ import annotations

from functools import cache

from torch import nn

from reviser.config import ModelConfig
from reviser.model.transformer import make_meta


@cache
def num_parameters(config: ModelConfig) -> int:
    """Weights of the model, without the rows that only pad its action table."""
    model = make_meta(config)
    padding = len(model.embedding.weight) - config.alphabet.size
    num_tables = 1 if config.tied else 2
    return sum(p.numel() for p in model.parameters()) - num_tables * padding * config.width


@cache
def num_multiplied(config: ModelConfig) -> int:
    """Weights that every position is multiplied with: all but the tables it looks up; the head counts."""
    tables = [module for module in make_meta(config).modules() if isinstance(module, nn.Embedding)]
    looked_up = sum(table.weight.numel() for table in tables[1:])
    embedding = 0 if config.tied else config.alphabet.size * config.width
    return num_parameters(config) - looked_up - embedding


def flops_per_position(config: ModelConfig, mean_context: float) -> float:
    """Training operations of one position, 6 N + 12 L d T by the usual count.

    T is the length of the sequences, attention counted in full although half of it is masked; a forward pass
    alone is a third of this.
    """
    attention = 12 * config.num_layers * config.width * mean_context
    return 6.0 * num_multiplied(config) + attention
