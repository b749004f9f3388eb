"""The batched executor: B canvases as tensors, one action for each in, the canvases after them out.

    cells   . a b c d . . . . x      canvas "a b | c d" (cursor 2) of at most 7 tokens: a `none` cell either side,
    place   0 1 2 3 4 5 6 7 8 9      none behind the end, and a spare last cell that takes writes meant for nowhere
    INSERT  . a b n c d . . . x      one gather moves what lies behind the edit, one small scatter writes the edit

canvas.py is the reference. Everything is updated in place and nothing here asks the device for a value, but `load`
and `canvases`; so a step can be captured as a CUDA graph or compiled. Actions must be valid, as sampling sees to; an
invalid one spoils its own row and no other. A row that stopped or has no action left ignores what it is given.

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> board = Board(alphabet, INSERT_MOVE, num_rows=2, max_length=16)
>>> board.load([1], [Canvas((72, 105), cursor=2)], [Rules(alphabet, max_length=16)], [9])
>>> board.apply(torch.tensor([0, 33]))
>>> board.canvas(1).tokens, board.canvas(0).tokens, board.windows(2)[1].tolist()
((72, 105, 33), (), [105, 33, 257, 257])

Shape letters: B rows, L tokens that fit, C = L + 3 cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from reviser.actions import (
    COPY,
    CUT,
    DELETE,
    INSERT_MOVE,
    MAX_MOVE_EXPONENT,
    MOVES,
    NUM_SPECIAL,
    PASTE,
    REPLACE,
    SPAN_SIZES,
    STOP,
    SWAP,
    Alphabet,
    check_operators,
)
from reviser.canvas import Canvas, Rules

CLIP = SPAN_SIZES[-1]
"""Tokens that fit the clipboard."""

STOP_ONLY, INSERT_ONLY, PASTE_ONLY, REPLACE_ONLY = 1 << STOP, 1 << NUM_SPECIAL, 1 << PASTE, 1 << REPLACE
NUMBERS = ("length", "cursor", "clip", "replacing", "stopped", "prefix", "suffix", "left", "room", "initial")
EVERYTHING_LEFT = 1 << 40
KERNEL_OPERATORS = frozenset({"move", "delete", "replace"})
"""What the boards of cpu/ and gpu/ know beside INSERT and STOP; rules that enable more need a `Board`."""


def check_kernel_operators(operators: Iterable[str]) -> frozenset[str]:
    """The operators, where the fast boards know all of them."""
    enabled = check_operators(operators)
    if unknown := enabled - KERNEL_OPERATORS:
        raise ValueError(f"no fast board for {', '.join(sorted(unknown))}; use Board")
    return enabled


class Board:
    """B canvases under the rules of one model; rows that nothing was loaded into are idle."""

    def __init__(
        self,
        alphabet: Alphabet,
        operators: Iterable[str],
        num_rows: int,
        max_length: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.alphabet, self.operators, self.max_length = alphabet, check_operators(operators), max_length
        self.cells = torch.full((num_rows, max_length + 3), alphabet.none, device=device)
        self.clipboard = torch.full((num_rows, CLIP), alphabet.none, device=device)

        def numbers(dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(num_rows, dtype=dtype, device=device)

        self.length, self.cursor, self.clip = numbers(), numbers(), numbers()
        self.replacing, self.stopped = numbers(torch.bool), numbers(torch.bool)
        self.prefix, self.suffix = numbers(), numbers()
        self.left = numbers()
        """[B] actions left; 0 once stopped."""
        self.room = numbers()
        """[B] tokens that the row's canvas may hold, at most L."""
        self.initial = numbers()
        """[B] tokens that the canvas held when it was loaded."""
        self._make_tables(device)

    def _make_tables(self, device: torch.device | str) -> None:
        alphabet, L = self.alphabet, self.max_length

        def constant(values: Iterable[int] | int) -> Tensor:
            return torch.tensor(values if isinstance(values, int) else list(values), device=device)

        def of_action(text: int, special: Callable[[int], int]) -> Tensor:
            values = [special(alphabet.num_text + offset) for offset in range(NUM_SPECIAL)]
            return torch.cat([torch.full((alphabet.num_text,), text), torch.tensor(values)]).to(device)

        self._no_action, self._stop_only = constant(alphabet.none), constant(STOP_ONLY)
        self._insert_only, self._paste_only = constant(INSERT_ONLY), constant(PASTE_ONLY)
        self._all_but_replace = constant(~REPLACE_ONLY)
        self._spare, self._places = constant(L + 2), constant(range(L + 3))
        self._places_before = self._places - 1
        self._back = constant(_bits_of_reach(reach, self.operators) for reach in range(L + 1))
        self._forth = constant(_bits_of_moves(ahead, 0, self.operators) for ahead in range(L + 1))
        self._copies = constant(_bits_of_spans(COPY, cursor) for cursor in range(L + 1))
        self._cost = of_action(1, lambda a: {alphabet.none: 0, alphabet.stop: EVERYTHING_LEFT}.get(a, 1))
        self._distance, self._step = of_action(0, alphabet.distance), of_action(1, alphabet.distance)
        self._is_plain = self.operators <= INSERT_MOVE
        self._removed = of_action(0, lambda a: alphabet.span(a) if alphabet.operator(a) in _REMOVING else 0)
        self._written = of_action(1, lambda a: 2 if a == alphabet.swap else 0)
        self._taken = of_action(0, lambda a: alphabet.span(a) if alphabet.operator(a) in _TAKING else 0)
        self._has_clipboard = bool(self.operators & {"cut", "copy", "paste"})
        self._slots = constant(range(CLIP if "paste" in self.operators else 2 if "swap" in self.operators else 1))
        self._clip_slots = constant(range(CLIP))

    def load(
        self, rows: Sequence[int], canvases: Sequence[Canvas], rules: Sequence[Rules], actions_left: Sequence[int]
    ) -> None:
        """Put canvases into rows, whatever those held before; `actions_left` counts generated actions."""
        first = len(NUMBERS)
        lines = np.full((len(rows), first + CLIP + self.max_length + 3), self.alphabet.none, np.int64)
        for line, canvas, given, left in zip(lines, canvases, rules, actions_left, strict=True):
            self._check(canvas, given)
            size = len(canvas.tokens)
            line[:5] = size, canvas.cursor, len(canvas.clipboard), canvas.is_replacing, canvas.is_stopped
            line[5:first] = given.prefix, given.suffix, 0 if canvas.is_stopped else left, given.max_length, size
            line[first : first + len(canvas.clipboard)] = canvas.clipboard
            line[first + CLIP + 1 : first + CLIP + 1 + size] = canvas.tokens
        places = torch.tensor(rows, dtype=torch.int64, device=self.cells.device)
        values = torch.from_numpy(lines).to(self.cells.device)
        self.clipboard.index_copy_(0, places, values[:, first : first + CLIP])
        self.cells.index_copy_(0, places, values[:, first + CLIP :])
        for column, name in enumerate(NUMBERS):
            numbers_of = getattr(self, name)
            numbers_of.index_copy_(0, places, values[:, column].to(numbers_of.dtype))

    def _check(self, canvas: Canvas, rules: Rules) -> None:
        size = len(canvas.tokens)
        if max(size, rules.max_length) > self.max_length:
            raise ValueError(f"{size} tokens of at most {rules.max_length} on a board for {self.max_length}")
        if rules.operators != self.operators or rules.alphabet != self.alphabet:
            raise ValueError(f"rules for {sorted(rules.operators)} on a board for {sorted(self.operators)}")
        if not rules.prefix <= canvas.cursor <= size - rules.suffix:
            bounds = f"{rules.prefix}..{size - rules.suffix}"
            raise ValueError(f"cursor {canvas.cursor} in protected text, outside {bounds}")

    def canvas(self, row: int) -> Canvas:
        return self.canvases([row])[0]

    def canvases(self, rows: Sequence[int]) -> list[Canvas]:
        """Read rows back, in one transfer."""
        columns = [getattr(self, name)[:, None].long() for name in NUMBERS[:5]]
        places = torch.tensor(rows, dtype=torch.int64, device=self.cells.device)
        lines = torch.cat([*columns, self.clipboard, self.cells], dim=1).index_select(0, places).cpu().numpy()
        first = 5 + CLIP + 1
        canvases = []
        for line, (size, cursor, clip, *flags) in zip(lines, lines[:, :5].tolist(), strict=True):
            # Only what the canvas holds becomes Python's numbers: lines are long.
            tokens, clipboard = line[first : first + size].tolist(), line[5 : 5 + clip].tolist()
            canvases.append(Canvas(tuple(tokens), cursor, tuple(clipboard), *map(bool, flags)))
        return canvases

    @property
    def tokens(self) -> Tensor:
        """[B, L], `none` behind the end."""
        return self.cells[:, 1:-2]

    @property
    def grown(self) -> Tensor:
        """[B] how many tokens longer the canvas is than when it was loaded."""
        return self.length - self.initial

    def valid(self) -> Tensor:
        """[B] bit j: action V + j is valid; bit 34: inserting is. An idle row has STOP alone, which it ignores."""
        L = self.max_length
        reach, ahead = self.cursor - self.prefix, self.length - self.suffix - self.cursor
        mask = self._back.index_select(0, reach.clamp_(0, L)) | self._forth.index_select(0, ahead.clamp_(0, L))
        mask |= (self.length < self.room) * self._insert_only
        if "copy" in self.operators:
            mask |= self._copies.index_select(0, self.cursor)
        if "paste" in self.operators:
            mask |= ((self.clip > 0) & (self.length + self.clip <= self.room)) * self._paste_only
        if "replace" in self.operators:
            mask = torch.where(self.left < 2, mask & self._all_but_replace, mask)
            mask = torch.where(self.replacing, self._insert_only, mask)
        return torch.where(self.left > 0, mask, self._stop_only)

    def apply(self, actions: Tensor) -> None:
        """Execute one action [B] in each row that is not idle."""
        actions = torch.where(self.left > 0, actions, self._no_action)
        if self._is_plain:
            self._insert_or_move(actions)
        else:
            self._edit(actions)
        self.stopped |= actions == self.alphabet.stop
        self.left.sub_(self._cost.index_select(0, actions)).clamp_(min=0)

    def _insert_or_move(self, actions: Tensor) -> None:
        is_text = actions < self.alphabet.num_text
        at = torch.where(is_text, self.cursor + 1, self._spare)[:, None]
        source = torch.where(self._places > at, self._places_before, self._places)
        self.cells.copy_(self.cells.gather(1, source))
        self.cells.scatter_(1, at, actions[:, None])
        self.cursor.add_(self._step.index_select(0, actions)).clamp_(0, self.max_length)
        self.length += is_text

    def _edit(self, actions: Tensor) -> None:
        """Any action: `removed` tokens left of the cursor give way to `written` ones."""
        L, removed = self.max_length, self._removed.index_select(0, actions)
        written = self._written.index_select(0, actions)
        if "replace" in self.operators:
            removed = removed + (self.replacing & (actions < self.alphabet.num_text))
        if "paste" in self.operators:
            written = written + (actions == self.alphabet.paste) * self.clip
        begin = self.cursor - removed
        end, growth = begin + written, written - removed
        edit = self._written_tokens(actions)
        if self._has_clipboard:
            self._fill_clipboard(actions)
        places = self._places
        source = torch.where(places > end[:, None], places - growth[:, None], places).clamp_(max=L + 1)
        self.cells.copy_(self.cells.gather(1, source))
        at = torch.where(self._slots < written[:, None], begin[:, None] + self._slots + 1, self._spare)
        self.cells.scatter_(1, at.clamp_(0, L + 2), edit)
        self.cursor.copy_(end + self._distance.index_select(0, actions)).clamp_(0, L)
        self.length.add_(growth).clamp_(0, L)
        if "replace" in self.operators:
            self.replacing.copy_(actions == self.alphabet.replace)

    def _written_tokens(self, actions: Tensor) -> Tensor:
        """[B, slots] what takes the place of the removed tokens, as far as the action writes any."""
        tokens = actions[:, None].expand(-1, len(self._slots))
        if "paste" in self.operators:
            tokens = torch.where(tokens == self.alphabet.paste, self.clipboard, tokens)
        if "swap" in self.operators:
            swapped = self.cells.gather(1, (self.cursor[:, None] - self._slots).clamp_(min=0))
            tokens = torch.where(actions[:, None] == self.alphabet.swap, swapped, tokens)
        return tokens

    def _fill_clipboard(self, actions: Tensor) -> None:
        taken = self._taken.index_select(0, actions)[:, None]
        places = (self.cursor[:, None] + 1 - taken + self._clip_slots).clamp_(0, self.max_length)
        tokens = self.cells.gather(1, places)
        tokens = torch.where(self._clip_slots < taken, tokens, self._no_action)
        self.clipboard.copy_(torch.where(taken > 0, tokens, self.clipboard))
        self.clip.copy_(torch.where(taken[:, 0] > 0, taken[:, 0], self.clip))

    def windows(self, width: int) -> Tensor:
        """[B, 2 width]: the tokens left and right of the cursor, `none` past an edge."""
        offsets = torch.arange(1 - width, width + 1, device=self.cells.device)
        return self.cells.gather(1, (self.cursor[:, None] + offsets).clamp_(0, self.max_length + 1))

    def rows(self) -> Tensor:
        """[B, L + 1]: the canvas with CURSOR (which is `none`) at the cursor, -1 behind the end."""
        places, cursor = self._places[: self.max_length + 1], self.cursor[:, None]
        source = torch.where(places > cursor, places, places + 1).masked_fill_(places == cursor, 0)
        return self.cells.gather(1, source).masked_fill_(places > self.length[:, None], -1)

    def repeated(self, size: int) -> Tensor:
        """[B, L] the tokens that `sampling.repeated_tokens` names, `pad` elsewhere."""
        tokens, places = self.tokens, self._places[: self.max_length]
        left, right = (self.cursor - self.replacing.long())[:, None], self.cursor[:, None]
        # The n-gram that ends at a place lies whole on one side of the cursor.
        is_repeat = (places < left) | (places >= right + size - 1)
        is_repeat = is_repeat & (places >= size - 1) & (left >= size - 1) & (places < self.length[:, None])
        for back in range(1, size):
            context = self.cells.gather(1, (left + 1 - back).clamp_(min=0))
            is_repeat = is_repeat & (tokens.roll(back, dims=1) == context)
        return torch.where(is_repeat, tokens, self.alphabet.pad)


_REMOVING = ("delete", "swap", "cut")
_TAKING = ("cut", "copy")


def _bits_of_spans(first: int, reach: int) -> int:
    return sum(1 << (first + i) for i, size in enumerate(SPAN_SIZES) if size <= reach)


def _bits_of_moves(reach: int, is_back: int, operators: frozenset[str]) -> int:
    exponents = range(MAX_MOVE_EXPONENT + 1) if "move" in operators else ()
    return sum(1 << (MOVES + 2 * i + is_back) for i in exponents if 1 << i <= reach)


def _bits_of_reach(reach: int, operators: frozenset[str]) -> int:
    """STOP, and what is valid for `reach` unprotected tokens left of the cursor."""
    bits = STOP_ONLY | _bits_of_moves(reach, 1, operators)
    bits |= (1 << DELETE) if "delete" in operators and reach >= 1 else 0
    bits |= REPLACE_ONLY if "replace" in operators and reach >= 1 else 0
    bits |= (1 << SWAP) if "swap" in operators and reach >= 2 else 0
    return bits | (_bits_of_spans(CUT, reach) if "cut" in operators else 0)
