"""A canvas input that sees where the cursor stands and nothing else; importing this registers it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from reviser.config import ModelConfig
from reviser.model.canvas_kinds import CanvasKind, register_canvas
from reviser.model.conditioning import CanvasInput, Memory


class PlaceReader(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.max_length + 1, config.width)

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        assert canvas.cursors is not None
        return Memory(self.table(canvas.cursors))


@dataclass(frozen=True)
class Place(CanvasKind):
    sees_cursor = True

    def reader(self, config: ModelConfig) -> nn.Module:
        return PlaceReader(config)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        return 0.0

    def sentence(self, config: ModelConfig) -> str:
        return "where the cursor stands, added to its input"


register_canvas("place", Place)
