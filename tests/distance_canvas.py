"""A canvas input of one's own: how far the cursor is from the end of the canvas."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model.canvas_kinds import CanvasKind, register_canvas
from reviser.model.conditioning import CanvasInput, Memory


class DistanceReader(nn.Module):
    """rows [B, T, R] -> [B, T, d]: the distance falls into a bucket (0, 1, 2-3, 4-7, ...), each with an embedding."""

    def __init__(self, config: ModelConfig, buckets: int) -> None:
        super().__init__()
        self.cursor = config.alphabet.none
        self.table = nn.Embedding(buckets, config.width)

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        assert canvas.rows is not None
        # A row is the canvas with the cursor's own id at the cursor, then -1 to the end.
        last = (canvas.rows >= 0).sum(-1) - 1
        cursor = (canvas.rows == self.cursor).int().argmax(-1)
        edges = 2 ** torch.arange(self.table.num_embeddings - 1, device=cursor.device)
        return Memory(self.table(((last - cursor)[..., None] >= edges).sum(-1)))


@dataclass(frozen=True)
class Distance(CanvasKind):
    buckets: int = 8

    shows = "rows"

    def __post_init__(self) -> None:
        if self.buckets < 2:
            raise ConfigError(f"buckets is {self.buckets}; it must be at least 2")

    def reader(self, config: ModelConfig) -> nn.Module:
        return DistanceReader(config, self.buckets)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        return 0.0  # a look-up, no product

    def sentence(self, config: ModelConfig) -> str:
        return f"how far the cursor is from the end of the canvas, in {self.buckets} buckets, added to its input"


register_canvas("distance", Distance)
