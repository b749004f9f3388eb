"""How systems edit: the paper's ten rows and more, each beside what the order alone would give.

The null statistics are those of trajectories that the order draws for texts of the same lengths, with no model:
what a model adds is the difference. Plots show where the cursor goes and where insertions land.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from reviser.canvas import Rules
from reviser.errors import ConfigError, DataError, MissingPackageError, ReviserError
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Measure, quotient
from reviser.orders.checked import draw_by_method
from reviser.orders.policies import Order, needs_ends
from reviser.orders.record import Draft, Trajectory, from_record
from reviser.orders.registry import format_order
from reviser.orders.rng import Random
from reviser.orders.statistics import Counts, summarise

MOST_PATHS = 6
"""Cursor paths in one plot."""
RATIOS = {
    "actions_per_token": ("actions", "tokens"),
    "operations_per_token": ("operations", "tokens"),
    "jumps_per_token": ("jumps", "tokens"),
    "insert_fraction": ("inserts", "actions"),
    "move_fraction": ("moves", "actions"),
    "mean_move_distance": ("travel", "moves"),
    "backward_fraction": ("back_moves", "moves"),
    "mean_insertion_position": ("relative_sum", "relative_count"),
    "end_append_fraction": ("end_appends", "inserts"),
    "revised_fraction": ("revised", "trajectories"),
    "turn_fraction": ("turns", "moves"),
}
"""Statistics of trajectories as one sum over another, so that they have errors."""
A_BYTE = {"actions_per_byte": "actions", "operations_per_byte": "operations"}
"""The same over the bytes of what was written."""


def trajectories_of(generations: Sequence[Generation], system: str) -> list[Trajectory]:
    """The trajectories a system left; a system that does not edit has none."""
    edited = [each for each in generations if each.system == system and each.record is not None]
    if not edited:
        raise DataError(f"system {system} left no trajectories; only models that edit have any")
    return list(map(_read_trajectory, edited))


def _read_trajectory(generation: Generation) -> Trajectory:
    try:
        return from_record(generation.record or {})
    except ReviserError as error:
        where = f"system {generation.system}, prompt {generation.prompt_id}, seed {generation.seed}"
        raise DataError(f"{where}: its record is not a trajectory ({error}); generate it again") from None


def describe(
    generations: Sequence[Generation],
    system: str,
    order: Order | None = None,
    seed: int = 0,
    ends: frozenset[int] = frozenset(),
) -> dict[str, Any]:
    """Statistics of a system, what the order alone gives at its lengths, and its lengths against the references'.

    `ends`: the tokens that end a sentence, for orders that cut there; without, such an order gives nothing.
    """
    trajectories, own = trajectories_of(generations, system), [each for each in generations if each.system == system]
    num_bytes = sum(_sizes(generations, system))
    drawn: list[Trajectory] | None = None
    if order is not None and (ends or not needs_ends(order)):
        drawn = null_trajectories(trajectories, order, seed, ends)
    return {
        "system": system,
        "order": None if order is None else format_order(order),
        "statistics": summarise(trajectories, num_bytes),
        "null": None if drawn is None else summarise(drawn, num_bytes),
        "stopped_share": Measure.of([float(each.is_stopped) for each in own]).value,
        "length_ratio": _ratio([len(each.text) for each in own], [len(each.reference) for each in own]),
        "n": len(trajectories),
    }


def measure(generations: Sequence[Generation], system: str) -> dict[str, Any]:
    """A system's statistics; those that are one sum over another as measures, with errors over prompts."""
    drawn = trajectories_of(generations, system)
    prompts = [each.prompt_id for each in generations if each.system == system and each.record is not None]
    sizes, counts = _sizes(generations, system), list[Counts]()
    found = summarise(drawn, sum(sizes))
    for trajectory in drawn:
        counts.append(Counts())
        counts[-1].add(trajectory)
    sums = {part: [float(getattr(each, part)) for each in counts] for pair in RATIOS.values() for part in pair}
    sums["bytes"] = list(map(float, sizes))
    for key, (top, bottom) in (RATIOS | {key: (part, "bytes") for key, part in A_BYTE.items()}).items():
        if (share := quotient(prompts, sums[top], sums[bottom])) is not None:
            found[key] = asdict(share)
    ends = found["end_append_fraction"]
    found["non_end_append_fraction"] = ends and {**ends, "value": 1 - ends["value"]}
    return found


def _sizes(generations: Sequence[Generation], system: str) -> list[int]:
    """Bytes of each text whose trajectory is known."""
    return [len(each.text.encode()) for each in generations if each.system == system and each.record is not None]


def null_trajectories(
    trajectories: Sequence[Trajectory], order: Order, seed: int = 0, ends: frozenset[int] = frozenset()
) -> list[Trajectory]:
    """One trajectory of the order for each given one, to the text that it wrote between the protected ones."""
    drawn = []
    for number, trajectory in enumerate(trajectories):
        rules, text = trajectory.draft.rules, trajectory.draft.editable(trajectory.final.tokens)
        free = Rules(rules.alphabet, rules.operators | order.needs, max_length=max(len(text), 1), ends=ends)
        drawn.append(draw_by_method(order, Draft.continuation((), free), text, Random.of(seed, number)))
    return drawn


def cursor_path(trajectory: Trajectory) -> list[float]:
    """Where the cursor stands after each action, in the editable part: 0 at its front, 1 at its end."""
    draft, path = trajectory.draft, []
    for state in trajectory.states():
        length = len(state.tokens) - draft.prefix - draft.suffix
        path.append((state.cursor - draft.prefix) / length if length else 1.0)
    return path


def insertion_times(trajectory: Trajectory) -> list[float]:
    """For each token of the final text that was not given, in its order, when it was inserted: 0 first, 1 last."""
    alphabet = trajectory.draft.rules.alphabet
    stamps: list[int | None] = [None] * len(trajectory.draft.tokens)
    for number, (state, action) in enumerate(zip(trajectory.states(), trajectory.actions, strict=False)):
        place, operator = state.cursor, alphabet.operator(action)
        if alphabet.is_insert(action):
            stamps[place - state.is_replacing : place] = [number]
        elif operator == "delete":
            del stamps[place - 1]
        elif operator not in (None, "replace", "move", "jump"):
            raise DataError(
                "tokens of this text were cut or swapped; insertion times are those of tokens that stay in order"
            )
    inserted = [stamp for stamp in stamps if stamp is not None]
    last = max(inserted, default=0) or 1
    return [stamp / last for stamp in inserted]


def move_distances(trajectory: Trajectory) -> list[int]:
    """How far each MOVE and each JUMP goes, either way."""
    alphabet, cursors = trajectory.draft.rules.alphabet, [state.cursor for state in trajectory.states()]
    moved = zip(trajectory.actions, pairwise(cursors), strict=True)
    return [abs(after - before) for action, (before, after) in moved if alphabet.operator(action) in ("move", "jump")]


def plot(systems: Mapping[str, Sequence[Trajectory]], path: str | Path) -> None:
    """Cursor paths, insertion order and move lengths side by side, a row a system, into one picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError("matplotlib", "a plot", "pip install 'reviser[eval]'") from None
    figure = Figure(figsize=(13, 3.6 * len(systems)), layout="constrained")
    for (name, trajectories), row in zip(
        systems.items(), figure.subplots(len(systems), 3, squeeze=False), strict=True
    ):
        _draw_row(name, trajectories, *row)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be written ({error}); give a file such as paths.png") from None


def _draw_row(name: str, trajectories: Sequence[Trajectory], paths: Any, times: Any, moves: Any) -> None:
    for trajectory in trajectories[:MOST_PATHS]:
        paths.plot(cursor_path(trajectory), linewidth=0.9)
        with suppress(DataError):
            ranks = insertion_times(trajectory)
            times.scatter([i / max(len(ranks) - 1, 1) for i in range(len(ranks))], ranks, s=4)
    paths.set(title=f"{name}: cursor", xlabel="action", ylabel="place in the text, 0 to 1")
    times.set(title="insertion order", xlabel="place in the final text", ylabel="when it was inserted")
    # A JUMP goes any distance, so distances count by powers of two.
    powers = [1 << (far.bit_length() - 1) for each in trajectories for far in move_distances(each)]
    sizes = sorted(set(powers))
    moves.bar([str(size) for size in sizes], [powers.count(size) / len(powers) for size in sizes])
    moves.set(title="move lengths", xlabel="tokens, this power of two and up", ylabel="share of moves")


def _ratio(ours: Sequence[int], theirs: Sequence[int]) -> float | None:
    """The length of all texts over that of all references."""
    return sum(ours) / sum(theirs) if sum(theirs) else None
