"""The batched executor: B canvases as tensors, one action for each in, the canvases after them out.

    cells   . a b c d . . . . x      canvas "a b | c d" (cursor 2) of at most 7 tokens: the front, the tokens, `none`
    place   0 1 2 3 4 5 6 7 8 9      behind the end, and a spare last cell that takes writes meant for nowhere
    INSERT  . a b n c d . . . x      one gather moves what lies behind the edit, one small scatter writes the edit

A cell is one number, so that one shift moves all of it: the token, its marks, and its birth, the place in the history
of the action that inserted it. Cell p is also about boundary p, on the token's right; cell 0 is about the front.

    bits 0..19 token     20 the token is fixed     21 the boundary is closed     24.. birth

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

import torch
from torch import Tensor

from reviser.actions import (
    COPY,
    CUT,
    INSERT_MOVE,
    JUMP,
    JUMPS,
    MOVES,
    NUM_SPECIAL,
    REPLACE,
    SPAN_SIZES,
    SWAP,
    Alphabet,
    check_operators,
)
from reviser.canvas import Canvas, Rules
from reviser.decoding.cpu.cells import (
    BIRTH_AT,
    CELLS,
    CLIP,
    CLOSED_CELL,
    DELETE_ONLY,
    FIXED_CELL,
    INSERT_ONLY,
    JUMP_ONLY,
    MOVE_BITS,
    NUMBERS,
    PASTE_ONLY,
    REPLACE_ONLY,
    SHOWN,
    STOP_ONLY,
    TOKEN,
    canvases_of,
    check_alphabet,
    check_fits,
    lines_of,
)

EVERYTHING_LEFT = 1 << 40


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
        check_alphabet(alphabet)
        self.alphabet, self.operators, self.max_length = alphabet, check_operators(operators), max_length
        self.cells = torch.full((num_rows, max_length + 3), alphabet.none, device=device)
        self.clipboard = torch.full((num_rows, CLIP), alphabet.none, device=device)
        self.numbers = torch.zeros(len(NUMBERS), num_rows, dtype=torch.int64, device=device)
        """All that follows, for kernels."""
        self.length, self.cursor, self.clip, self.replacing, self.stopped = self.numbers[:5].unbind()
        self.closed, self.left, self.room, self.initial, self.age = self.numbers[5:].unbind()
        self._make_tables(device)

    def _make_tables(self, device: torch.device | str) -> None:
        alphabet, L, operators = self.alphabet, self.max_length, self.operators

        def constant(values: Iterable[int] | int) -> Tensor:
            return torch.tensor(values if isinstance(values, int) else list(values), device=device)

        def of_row(text: int, special: Callable[[int], int]) -> Tensor:
            values = [special(alphabet.num_text + offset) for offset in range(NUM_SPECIAL)]
            return torch.cat([torch.full((alphabet.num_text,), text), torch.tensor(values)]).to(device)

        self._no_action, self._stop_only = constant(alphabet.none), constant(STOP_ONLY)
        self._insert_only, self._paste_only = constant(INSERT_ONLY), constant(PASTE_ONLY)
        self._jump_only, self._all_but_replace = constant(JUMP_ONLY), constant(~REPLACE_ONLY)
        self._nowhere = constant(-1)
        self._spare, self._places = constant(L + 2), constant(range(L + 3))
        self._places_before = self._places - 1
        moves = range(alphabet.num_text + MOVES, alphabet.num_text + REPLACE)
        self._distances, self._move_bits = constant(map(alphabet.distance, moves)), constant(MOVE_BITS)
        self._backs = constant(range(CLIP + 1))
        self._nearness = CLIP - self._backs
        self._changing_bits = constant(_bits_of_changing(reach, operators) for reach in range(CLIP + 1))
        self._ending_bits = constant(_bits_of_ending(size, operators) for size in range(CLIP + 1))
        self._copies = constant(_bits_of_spans(COPY, cursor) for cursor in range(L + 1))
        self._cost = of_row(1, lambda a: {alphabet.none: 0, alphabet.stop: EVERYTHING_LEFT}.get(a, 1))
        self._distance, self._step = of_row(0, alphabet.distance), of_row(1, alphabet.distance)
        self._is_plain = operators <= INSERT_MOVE | {"jump"}
        self._removed = of_row(0, lambda a: alphabet.span(a) if alphabet.operator(a) in _REMOVING else 0)
        self._written = of_row(1, lambda a: 2 if a == alphabet.swap else 0)
        self._taken = of_row(0, lambda a: alphabet.span(a) if alphabet.operator(a) in _TAKING else 0)
        self._has_clipboard = bool(operators & {"cut", "copy", "paste"})
        self._slots = constant(range(CLIP if "paste" in operators else 2 if "swap" in operators else 1))
        self._clip_slots = constant(range(CLIP))

    def load(
        self,
        rows: Sequence[int],
        canvases: Sequence[Canvas],
        rules: Sequence[Rules],
        actions_left: Sequence[int],
        births: Sequence[Sequence[int]] | None = None,
        ages: Sequence[int] | None = None,
    ) -> None:
        """Put canvases into rows, whatever those held before; `actions_left` counts generated actions.

        `births` says of every token where in the history it was inserted, `ages` where the next action will be; left
        out, tokens were inserted one after another and nothing followed.
        """
        for canvas, given in zip(canvases, rules, strict=True):
            check_fits(canvas, given, self.alphabet, self.operators, self.max_length)
        how = self.alphabet.none, self.max_length, births, ages
        lines = lines_of(canvases, rules, actions_left, *how)
        places = torch.tensor(rows, dtype=torch.int64, device=self.cells.device)
        values, first = torch.from_numpy(lines).to(self.cells.device), len(NUMBERS)
        self.numbers.index_copy_(1, places, values[:, :first].T)
        self.clipboard.index_copy_(0, places, values[:, first:CELLS])
        self.cells.index_copy_(0, places, values[:, CELLS:])

    def canvas(self, row: int) -> Canvas:
        return self.canvases([row])[0]

    def canvases(self, rows: Sequence[int]) -> list[Canvas]:
        """Read rows back, in one transfer."""
        places = torch.tensor(rows, dtype=torch.int64, device=self.cells.device)
        parts = torch.cat([self.numbers[:SHOWN].T, self.clipboard, self.cells], dim=1)
        return canvases_of(parts.index_select(0, places).cpu().numpy())

    @property
    def tokens(self) -> Tensor:
        """[B, L], `none` behind the end."""
        tokens: Tensor = self.cells[:, 1:-2] & TOKEN
        return tokens

    @property
    def grown(self) -> Tensor:
        """[B] how many tokens longer the canvas is than when it was loaded."""
        return self.length - self.initial

    def valid(self) -> Tensor:
        """[B] bit j: action V + j is valid, 33: some JUMP is, 34: inserting is. An idle row has STOP alone, which it
        ignores."""
        mask = (self.length < self.room) * self._insert_only | self._stop_only
        if "move" in self.operators:
            mask |= self._valid_moves()
        if self.operators & {"delete", "replace", "swap", "cut"}:
            mask |= self._valid_changes()
        if "copy" in self.operators:
            mask |= self._copies.index_select(0, self.cursor)
        if "paste" in self.operators:
            mask |= ((self.clip > 0) & (self.length + self.clip <= self.room)) * self._paste_only
        if "jump" in self.operators:
            # The cursor stands at one of the open boundaries.
            mask |= (self.length > self.closed) * self._jump_only
        if "replace" in self.operators:
            mask = torch.where(self.left < 2, mask & self._all_but_replace, mask)
            mask = torch.where(self.replacing > 0, self._insert_only, mask)
        return torch.where(self.left > 0, mask, self._stop_only)

    def _valid_moves(self) -> Tensor:
        places = self.cursor[:, None] + self._distances
        is_there = (places >= 0) & (places <= self.length[:, None])
        cells = self.cells.gather(1, places.clamp_(0, self.max_length))
        bits: Tensor = (is_there & (cells & CLOSED_CELL == 0)) * self._move_bits
        return bits.sum(1)

    def _valid_changes(self) -> Tensor:
        """What takes or changes tokens left of the cursor, as far back as they are not fixed."""
        cells = self.cells.gather(1, (self.cursor[:, None] - self._backs).clamp_(min=0))
        nearest = ((cells & FIXED_CELL > 0) * self._nearness).amax(1)
        reach = torch.minimum(CLIP - nearest, self.cursor)
        bits: Tensor = ((cells & CLOSED_CELL == 0) & (self._backs <= reach[:, None])) * self._ending_bits
        return self._changing_bits.index_select(0, reach) | bits.sum(1)

    def landings(self) -> Tensor:
        """[B, L + 1] for each boundary that a JUMP may go to, the birth of the token on its left (0 for the front);
        -1 elsewhere."""
        cells, places = self.cells[:, : self.max_length + 1], self._places[: self.max_length + 1]
        if "jump" not in self.operators:
            return torch.full_like(cells, -1)
        can_jump = (self.left > 0) & (self.replacing == 0)
        is_there = (places <= self.length[:, None]) & (places != self.cursor[:, None]) & can_jump[:, None]
        return torch.where(is_there & (cells & CLOSED_CELL == 0), cells >> BIRTH_AT, self._nowhere)

    def apply(self, actions: Tensor) -> None:
        """Execute one action [B] in each row that is not idle."""
        is_live = self.left > 0
        actions = torch.where(is_live, actions, self._no_action)
        rows = actions.clamp(max=self.alphabet.num_text + JUMP)
        if self._is_plain:
            self._insert_or_move(actions, rows)
        else:
            self._edit(actions, rows)
        if "jump" in self.operators:
            goes_to = actions - (self.alphabet.num_text + JUMPS)
            self.cursor.copy_(torch.where(goes_to >= 0, goes_to, self.cursor))
        self.cursor.copy_(torch.minimum(self.cursor.clamp_(min=0), self.length))
        self.stopped |= actions == self.alphabet.stop
        self.age.add_(is_live)
        self.left.sub_(self._cost.index_select(0, rows)).clamp_(min=0)

    def _insert_or_move(self, actions: Tensor, rows: Tensor) -> None:
        is_text = actions < self.alphabet.num_text
        at = torch.where(is_text, self.cursor + 1, self._spare)[:, None]
        source = torch.where(self._places > at, self._places_before, self._places)
        self.cells.copy_(self.cells.gather(1, source))
        self.cells.scatter_(1, at, (actions | self.age << BIRTH_AT)[:, None])
        self.cursor += self._step.index_select(0, rows)
        self.length.add_(is_text).clamp_(max=self.max_length)

    def _edit(self, actions: Tensor, rows: Tensor) -> None:
        """Any action but JUMP: `removed` tokens left of the cursor give way to `written` ones."""
        L, removed = self.max_length, self._removed.index_select(0, rows)
        written = self._written.index_select(0, rows)
        if "replace" in self.operators:
            removed = removed + self.replacing * (actions < self.alphabet.num_text)
        if "paste" in self.operators:
            written = written + (actions == self.alphabet.paste) * self.clip
        begin = self.cursor - removed
        end, growth = begin + written, written - removed
        edit = self._written_cells(actions)
        if self._has_clipboard:
            self._fill_clipboard(rows)
        places = self._places
        source = torch.where(places > end[:, None], places - growth[:, None], places).clamp_(max=L + 1)
        self.cells.copy_(self.cells.gather(1, source))
        at = torch.where(self._slots < written[:, None], begin[:, None] + self._slots + 1, self._spare)
        self.cells.scatter_(1, at.clamp_(0, L + 2), edit)
        self.cursor.copy_(end + self._distance.index_select(0, rows))
        self.length.add_(growth).clamp_(0, L)
        if "replace" in self.operators:
            self.replacing.copy_(actions == self.alphabet.replace)

    def _written_cells(self, actions: Tensor) -> Tensor:
        """[B, slots] what takes the place of the removed tokens, as far as the action writes any."""
        cells = actions[:, None].expand(-1, len(self._slots))
        if "paste" in self.operators:
            cells = torch.where(cells == self.alphabet.paste, self.clipboard, cells)
        cells = cells | (self.age << BIRTH_AT)[:, None]
        if "swap" in self.operators:
            swapped = self.cells.gather(1, (self.cursor[:, None] - self._slots).clamp_(min=0))
            cells = torch.where(actions[:, None] == self.alphabet.swap, swapped, cells)
        return cells

    def _fill_clipboard(self, rows: Tensor) -> None:
        taken = self._taken.index_select(0, rows)[:, None]
        places = (self.cursor[:, None] + 1 - taken + self._clip_slots).clamp_(0, self.max_length)
        tokens = self.cells.gather(1, places) & TOKEN
        tokens = torch.where(self._clip_slots < taken, tokens, self._no_action)
        self.clipboard.copy_(torch.where(taken > 0, tokens, self.clipboard))
        self.clip.copy_(torch.where(taken[:, 0] > 0, taken[:, 0], self.clip))

    def windows(self, width: int) -> Tensor:
        """[B, 2 width]: the tokens left and right of the cursor, `none` past an edge."""
        offsets = torch.arange(1 - width, width + 1, device=self.cells.device)
        places = (self.cursor[:, None] + offsets).clamp_(0, self.max_length + 1)
        return self.cells.gather(1, places).bitwise_and_(TOKEN)

    def rows(self) -> Tensor:
        """[B, L + 1]: the canvas with CURSOR (which is `none`) at the cursor, -1 behind the end."""
        places, cursor = self._places[: self.max_length + 1], self.cursor[:, None]
        source = torch.where(places > cursor, places, places + 1).masked_fill_(places == cursor, 0)
        return self.cells.gather(1, source).bitwise_and_(TOKEN).masked_fill_(places > self.length[:, None], -1)

    def repeated(self, size: int) -> Tensor:
        """[B, L] the tokens that `sampling.repeated_tokens` names, `pad` elsewhere."""
        tokens, places = self.tokens, self._places[: self.max_length]
        left, right = (self.cursor - self.replacing)[:, None], self.cursor[:, None]
        # The n-gram that ends at a place lies whole on one side of the cursor.
        is_repeat = (places < left) | (places >= right + size - 1)
        is_repeat = is_repeat & (places >= size - 1) & (left >= size - 1) & (places < self.length[:, None])
        for back in range(1, size):
            context = self.cells.gather(1, (left + 1 - back).clamp_(min=0)) & TOKEN
            is_repeat = is_repeat & (tokens.roll(back, dims=1) == context)
        return torch.where(is_repeat, tokens, self.alphabet.pad)


_REMOVING = ("delete", "swap", "cut")
_TAKING = ("cut", "copy")


def _bits_of_spans(first: int, reach: int) -> int:
    return sum(1 << (first + i) for i, size in enumerate(SPAN_SIZES) if size <= reach)


def _bits_of_changing(reach: int, operators: frozenset[str]) -> int:
    """What is valid for `reach` tokens left of the cursor that are not fixed, and leaves the cursor where it is."""
    bits = REPLACE_ONLY if "replace" in operators and reach >= 1 else 0
    return bits | ((1 << SWAP) if "swap" in operators and reach >= 2 else 0)


def _bits_of_ending(size: int, operators: frozenset[str]) -> int:
    """What takes `size` tokens and ends that far left of the cursor."""
    bits = DELETE_ONLY if "delete" in operators and size == 1 else 0
    return bits | (1 << (CUT + SPAN_SIZES.index(size)) if "cut" in operators and size in SPAN_SIZES else 0)
