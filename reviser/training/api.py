"""Training from Python: a recipe and text in, a run folder with a model out. `reviser train` calls the same function.

>>> run = train("debug", out="runs/mine", settings={"train.steps": 20})  # doctest: +SKIP
>>> run.is_done, run.model_folder, run.metrics[-1]["bits_per_byte"]  # doctest: +SKIP
(True, PosixPath('runs/mine/model'), 5.79)
>>> run = train(resume="runs/mine", settings={"train.steps": 40}, progress="rich")  # doctest: +SKIP

Nothing is printed and no signal handler is installed unless asked for. Under torchrun, every process calls it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import torch.distributed as dist

from reviser.actions import Alphabet
from reviser.config import override, to_dict
from reviser.data.own_source import TOKENIZER, prepare_own_source
from reviser.data.shards import Shards, read_header
from reviser.data.slots import Slots
from reviser.errors import ConfigError
from reviser.model.checkpoint import check_tokenizer
from reviser.model.folder import find, read_config
from reviser.tokenizer import load
from reviser.training.distributed import Team, join_team, leave_team
from reviser.training.families import find_family
from reviser.training.loop import Trainer
from reviser.training.progress import Display, ProgressKind, make_display
from reviser.training.recipes import Recipe, debug, find_recipe
from reviser.training.runs import Run
from reviser.training.settings import RunConfig, find_place

AnyPath = str | os.PathLike[str]
Settings = Mapping[str, Any] | Sequence[str]
"""Settings by their dotted names, {"train.steps": 20}, or as `--set` takes them, ["train.steps=20"]."""


def train(
    recipe: str | Recipe | RunConfig | None = None,
    *,
    data: AnyPath | None = None,
    out: AnyPath | None = None,
    resume: AnyPath | None = None,
    settings: Settings = (),
    steps: int | None = None,
    device: str = "auto",
    progress: ProgressKind | None = None,
    handle_signals: bool = False,
    or_resume: bool = False,
) -> Run:
    """Train a model by a recipe into the run folder `out`, or continue the run folder `resume`.

    recipe          its name, its function or a whole config; left out with `resume`
    data            a data folder; without one, `debug` trains on this package's own source
    out             the run folder to make (default runs/RECIPE)
    resume          a run folder to continue from its newest checkpoint
    settings        changes to single settings, by dotted name; a name that does not exist is an error
    steps           stop after this many steps; the schedule stays that of the recipe
    device          auto, cpu, cuda, cuda:1
    progress        "rich", "lines" or a function called with each `Update`; None shows nothing
    handle_signals  whether SIGINT and SIGTERM end the run after its step, with a checkpoint; without, Ctrl-C saves
                    and raises a KeyboardInterrupt that says how to resume
    or_resume       whether a run of the same settings that lies in `out` is resumed, or begun again where it has no
                    checkpoint yet; for launchers that start a command again when a machine has died

    A start that fails leaves no folder behind.
    """
    asked = _Request(recipe, data, out, resume, assignments(settings))
    if steps is not None:
        _check_steps(steps)
    shown, has_group = make_display(progress), dist.is_initialized()
    team = join_team(device)
    display = shown if team.is_first else Display()
    try:
        if or_resume:
            asked = _find_begun(asked, team)
        with ExitStack() as held:
            run, trainer = (_start if asked.resume is None else _resume)(asked, team, display, held)
            try:
                run.bounds = trainer.train(steps, display, handle_signals)
                if trainer.step >= trainer.settings.train.steps:
                    trainer.finish()
                    run.bounds = trainer.bounds
            except BaseException:
                if asked.resume is None and team.is_first and trainer.step == 0:
                    run.discard()
                raise
            run.was_stopped = bool(trainer.stop_signal)
            return run
    finally:
        if not has_group:
            leave_team()


def resolve(
    recipe: str | Recipe | RunConfig | None = None,
    *,
    data: AnyPath | None = None,
    resume: AnyPath | None = None,
    settings: Settings = (),
) -> RunConfig:
    """The whole config that `train` would use; nothing is written."""
    return _Request(recipe, data, None, resume, assignments(settings)).resolve()


@dataclass(frozen=True)
class _Request:
    """What `train` is asked for."""

    recipe: str | Recipe | RunConfig | None
    data: AnyPath | None = None
    out: AnyPath | None = None
    resume: AnyPath | None = None
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.recipe is None or isinstance(self.recipe, str | RunConfig) or callable(self.recipe)):
            raise _no_recipe(self.recipe)
        for name in ("data", "out", "resume"):
            path = getattr(self, name)
            if not (path is None or isinstance(path, str | os.PathLike)):
                raise ConfigError(f"{name}={path!r}; give the path of a folder")
        if (self.recipe is None) == (self.resume is None):
            raise ConfigError("give either a recipe or a run folder to resume")
        if self.resume is not None and self.out is not None:
            raise ConfigError(f"{self.resume} is resumed where it is; drop out={self.out}")

    @property
    def name(self) -> str:
        """Of the recipe."""
        if isinstance(self.recipe, str):
            return find_recipe(self.recipe).__name__
        return getattr(self.recipe, "__name__", "a config")

    @property
    def folder(self) -> Path:
        """Of the run."""
        given = self.out if self.resume is None else self.resume
        if given is not None:
            return Path(given)
        if isinstance(self.recipe, RunConfig):
            raise ConfigError("a config has no name to call its run folder by; give the folder as out")
        return Path("runs") / self.name

    @property
    def uses_own_source(self) -> bool:
        """Whether to train on this package's own source: `debug` does where no data folder is given."""
        if self.data is not None:
            return False
        if self.name == debug.__name__:
            return True
        raise ConfigError(
            f"{self.name} needs text to train on; make a data folder with `reviser data prepare`, give it as --data"
        )

    def resolve(self) -> RunConfig:
        """The whole config, for the tokenizer of its data; nothing is written."""
        if self.resume is not None:
            return override(Run.open(Path(self.resume))[1], self.changes)
        if self.uses_own_source:
            tokenizer = load(TOKENIZER)
        else:
            folder = Path(self.data or "")
            read_header(folder)
            tokenizer = load(folder)
        config = self._config(tokenizer.alphabet)
        return override(config, self.changes, **given_model(config, self.changes))

    def _config(self, alphabet: Alphabet) -> RunConfig:
        recipe = find_recipe(self.recipe) if isinstance(self.recipe, str) else self.recipe
        config = recipe(alphabet) if callable(recipe) else recipe
        if isinstance(config, RunConfig):
            return config
        raise _no_recipe(recipe)


def given_model(settings: RunConfig, changes: Sequence[str]) -> dict[str, Any]:
    """The sections that follow from the model of train.init, where such a run always begins with one."""
    if not settings.has_given_model:
        return {}
    given = [text.partition("=")[2].strip() for text in changes if text.partition("=")[0].strip() == "train.init"]
    source = [settings.train.init, *given][-1]
    if not source:
        raise ConfigError("train.init is empty, and such a run starts from a trained model; set it to a model folder")
    model = read_config(find(source)).model
    return {"model": model, "data": replace(settings.data, row=max(settings.data.row, model.context))}


def _no_recipe(given: object) -> ConfigError:
    return ConfigError(f"{given!r} is not a recipe; give a name, a RunConfig, or a function that returns one")


def _check_steps(steps: object) -> None:
    if isinstance(steps, bool) or not isinstance(steps, Integral):
        raise ConfigError(f"steps={steps!r} must be a whole number of at least 1")
    if steps < 1:
        raise ConfigError(f"steps={steps} must be at least 1")


def assignments(settings: Settings) -> tuple[str, ...]:
    """Settings as `--set` takes them."""
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise ConfigError(f"settings={settings!r}; give a mapping of names to values, e.g. {{'train.steps': 20}}")
    if not isinstance(settings, Mapping):
        given = tuple(settings)
        for each in given:
            if not isinstance(each, str):
                raise ConfigError(
                    f"{each!r} is not a setting; write 'name=value', or give a mapping of names to values"
                )
        return given
    return tuple(f"{name}={_spell(value)}" for name, value in settings.items())


def _spell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_spell, value))
    # 4.0 is as good as 4 where a whole number is wanted, and 4 as good as 4.0 elsewhere.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _start(asked: _Request, team: Team, display: Display, held: ExitStack) -> tuple[Run, Trainer]:
    settings, run = asked.resolve(), Run(asked.folder)
    team.lead(partial(_enter, held, run.claimed()))
    try:
        data = Path(asked.data or run.folder / "data")
        if asked.uses_own_source:
            display.say(f"no data folder given: training on this package's own source, prepared in {data}")
            team.lead(lambda: str(prepare_own_source(data)))
        shards, heldout = _open_data(data, settings, team)
        trainer = _make_trainer(settings, shards, heldout, team, run)
        trainer.begin()
        if team.is_first:
            run.write_settings(settings, str(data.absolute()))
    except BaseException:
        if team.is_first:
            run.discard()
        raise
    display.say(f"run {run.folder}: {_describe(settings, shards)}")
    for note in (_note_repeats(settings, len(shards), shards.num_tokens), _note_pairs(trainer)):
        if note:
            display.say(note)
    return run, trainer


def _resume(asked: _Request, team: Team, display: Display, held: ExitStack) -> tuple[Run, Trainer]:
    run, before, data = Run.open(asked.folder)
    settings = override(before, asked.changes)
    team.lead(partial(_enter, held, run.owned()))
    saved = run.load()
    _check_changes(run, before, settings, int(saved.state["step"]))
    shards, heldout = _open_data(Path(asked.data or data), settings, team)
    trainer = _make_trainer(settings, shards, heldout, team, run)
    trainer.restore(saved)
    if team.is_first:
        run.drop_old(settings.train.keep)
        run.rewind_metrics(trainer.step)
        run.log(f"continued from step {trainer.step} on {team.world} process(es)")
        if asked.changes:
            run.change(settings, asked.changes)
    display.say(f"run {run.folder}: continuing from step {trainer.step}; {_describe(settings, shards)}")
    return run, trainer


def _find_begun(asked: _Request, team: Team) -> _Request:
    """What was asked for or, where it has begun already, to resume it."""
    if asked.resume is not None:
        raise ConfigError("a run that may have begun is named by its recipe and out; drop resume, or or_resume")
    run = Run(asked.folder)

    def look() -> str:
        if not run.steps():
            run.clear_begun()
            return ""
        before, now = _leaves(Run.open(run.folder)[1]), _leaves(asked.resolve())
        if changed := [name for name in now if before.get(name) != now[name]]:
            name = changed[0]
            raise ConfigError(
                f"{run.folder} was begun with {name}={before.get(name)}, now {now[name]}; give the same settings, or "
                "another --out"
            )
        return "resume"

    if not team.lead(look):
        return asked
    return _Request(None, asked.data, None, run.folder)


def _leaves(settings: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted name."""
    found: dict[str, Any] = {}

    def add(values: Mapping[str, Any], prefix: str) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                add(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = value

    add(to_dict(settings), "")
    return found


def _check_changes(run: Run, before: RunConfig, after: RunConfig, step: int) -> None:
    """Refuse settings that no step would be made with; a run may be ended early, by its own number of steps."""
    if after == before or step < after.train.steps:
        return
    is_ended_early = step < before.train.steps and after == override(before, [f"train.steps={step}"])
    if not is_ended_early:
        raise ConfigError(
            f"{run.folder} is done after {step} steps; raise train.steps to train on, or start a new run"
        )


def _enter(held: ExitStack, context: AbstractContextManager[None]) -> str:
    held.enter_context(context)
    return ""


MANY_STARTS, MANY_TIMES = 0.5, 3
"""A share of stretches that begin documents, and how often those may be read, before anything is said."""
MANY_PAIRS = 16
"""How often each pair may be read before anything is said."""


def _make_trainer(settings: RunConfig, shards: Shards, heldout: Shards, team: Team, run: Run) -> Trainer:
    data = settings.data
    slots = Slots.of(shards, data.jobs, data.errors, data.mistakes)
    kind: type[Trainer] = find_place(settings.trainer)
    return kind(settings, slots, team, run if team.is_first else None, heldout)


def _open_data(folder: Path, settings: RunConfig, team: Team) -> tuple[Shards, Shards]:
    """Training and held-out documents, their files compared with their checksums."""
    splits = Shards.open(folder, "train"), Shards.open(folder, "heldout")
    check_tokenizer(settings.model, splits[0].tokenizer)
    if team.is_first:
        for shards in splits:
            shards.verify()
    return splits


def _describe(settings: RunConfig, shards: Shards) -> str:
    family = find_family(settings.family)
    kind = f"order {settings.data.order}" if family.uses_order else family.name
    return f"{family.count_parameters(settings):,} parameters, {kind}, {shards.num_tokens:,} tokens of text"


def _note_repeats(settings: RunConfig, num_documents: int, num_tokens: int) -> str:
    """What to say where the beginnings of documents would be read over and over, as if there were no other text."""
    jobs, train = settings.data.jobs, settings.train
    beginnings = min(num_documents * (sum(jobs.prefix) + sum(jobs.length)) // 2, num_tokens)
    times = jobs.from_start * train.steps * train.rows * settings.data.row / max(beginnings, 1)
    if jobs.from_start <= MANY_STARTS or times < MANY_TIMES or beginnings > num_tokens / 2:
        return ""
    return (
        f"note: {jobs.from_start:.0%} of the stretches begin a document, so the same {beginnings:,} tokens are read "
        f"about {times:.0f} times; with --set data.jobs.from_start=0.3 the rest of the documents is read too"
    )


def _note_pairs(trainer: Trainer) -> str:
    """What to say where pairs would be read so often that they are learned by heart."""
    settings, slots = trainer.settings, trainer.slots
    if not slots.num_paired:
        return ""
    some = slots.examples(slots.shuffle(0, 0)[:256], 0, 0)
    num_positions = settings.train.steps * settings.train.rows * settings.data.row
    num_examples = num_positions / float(trainer.packer.draw(some).sizes.mean())
    times = num_examples * slots.num_paired / len(slots) / len(slots.pairs)
    if times < MANY_PAIRS:
        return ""
    share = settings.data.jobs.pairs * MANY_PAIRS / times
    return (
        f"note: each of {len(slots.pairs):,} pairs will be read about {times:.0f} times and learned by heart; with "
        f"--set data.jobs.pairs={share:.1g} it is read about {MANY_PAIRS} times"
    )
