"""What a system makes of a text that it corrects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reviser.orders.record import Draft


@dataclass(frozen=True, slots=True)
class Correction:
    """A text after correction."""

    text: str
    num_actions: int
    """Actions of a model, edits of a peer."""
    seconds: float
    """That it took; of texts corrected together, each one's share."""
    is_finished: bool = True
    """Whether the system came to its own end; a rewriting that did not is the source again."""
    first: tuple[Draft, tuple[int, ...]] | None = None
    """What a model that edits did in its first pass over a text of one window: its draft and its actions."""
