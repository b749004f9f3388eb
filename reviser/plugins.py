"""What a name stands for where others may add names: orders, metrics and canvas inputs.

A name is added by `register`, as a call or a decorator. Installed packages add theirs through entry points, which are
read only when a name is not known yet; your own file is run by `load_plugin`, or by `reviser --plugin FILE`.

>>> shapes = Registry[type]("shape", "reviser.shapes")
>>> @shapes.register("square")
... class Square: ...
>>> shapes["square"] is Square
True
>>> shapes["sqare"]
Traceback (most recent call last):
reviser.errors.ConfigError: no shape 'sqare'; shapes are square; did you mean square?
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

from reviser.errors import ConfigError

Entry = TypeVar("Entry")
VARIABLE = "REVISER_PLUGINS"
"""Files that this process and those it starts have loaded, as a path list."""
NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Registry(Generic[Entry]):
    """Entries by name, of one kind; `group` is the entry point group in which packages announce theirs."""

    all: ClassVar[WeakSet[Registry[Any]]] = WeakSet()

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._entries: dict[str, Entry] = {}
        self._has_packages = False
        Registry.all.add(self)

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """A decorator that adds what it decorates; the same name twice is an error."""

        def add(entry: Entry) -> Entry:
            self.add(name, entry)
            return entry

        return add

    def add(self, name: str, entry: Entry) -> None:
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise ConfigError(f"{self.kind} {name!r}: a name has lower-case letters, digits, '-' and '_'; rename it")
        known = self._entries.get(name)
        if known is not None and not self._is_same(known, entry):
            raise ConfigError(f"there is already {_article(self.kind)} {name!r}; give this one another name")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            self._load_packages()
        if name in self._entries:
            return self._entries[name]
        near = difflib.get_close_matches(name, self._entries, 1)
        hint = f"did you mean {near[0]}?" if near else "a file that registers another is given with --plugin FILE"
        raise ConfigError(f"no {self.kind} {name!r}; {self.kind}s are {', '.join(self._entries)}; {hint}")

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._load_packages()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_packages()
        return iter(self._entries)

    def name_of(self, entry: object) -> str:
        """The name of an entry, or of an entry's instance."""
        for name, known in self._entries.items():
            if known is entry or type(entry) is known:
                return name
        raise ConfigError(f"{entry!r} is not a registered {self.kind}; register it under a name first")

    def defined_by(self, entry: Entry) -> object:
        """The class or function that an entry is, or is made from."""
        return entry

    def _is_same(self, one: Entry, other: Entry) -> bool:
        """Whether a cell or a file that runs a second time defines the same thing again."""
        first, second = self.defined_by(one), self.defined_by(other)
        names = [(getattr(each, "__module__", None), getattr(each, "__qualname__", None)) for each in (first, second)]
        # Lambdas, and what functions make, have names that say nothing.
        return first is second or (names[0] == names[1] and names[0][1] is not None and "<" not in names[0][1])

    def _load_packages(self) -> None:
        if self._has_packages:
            return
        self._has_packages = True
        for point in importlib.metadata.entry_points(group=self.group):
            try:
                self.add(point.name, point.load())
            except Exception as error:
                self._has_packages = False
                raise ConfigError(
                    f"the {self.kind} {point.name!r} of the package that provides {point.value} cannot be loaded "
                    f"({type(error).__name__}: {error}); fix or uninstall that package"
                ) from error


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Run a Python file that registers something, again if it has changed; processes started from here run it too."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"a plugin is the path of a Python file, not {type(path).__name__}")
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(f"plugin {path}: no such Python file; give a .py file")
    source = file.read_bytes()
    name = f"reviser_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if _sources.get(name) != source:
        _run(name, file, source)
        _sources[name] = source
    loaded = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    if str(file) not in loaded:
        os.environ[VARIABLE] = os.pathsep.join([*loaded, str(file)])


_sources: dict[str, bytes] = {}
"""What each plugin's module was made from."""


def _run(name: str, file: Path, source: bytes) -> None:
    """Run a file as a module; one that fails leaves nothing registered."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = {registry: dict(registry._entries) for registry in Registry.all}
    sys.modules[name] = module
    try:
        # Not by the spec's loader: bytecode that Python keeps is taken for new for a second after a change.
        exec(compile(source, file, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        for registry, entries in before.items():
            registry._entries = entries
        raise ConfigError(f"plugin {file} does not run ({type(error).__name__}: {error}); fix it") from error


def load_inherited() -> None:
    """Run the files that the process which started this one has run."""
    for each in os.environ.get(VARIABLE, "").split(os.pathsep):
        if each:
            load_plugin(each)


_on_command_line: list[str] = []


@contextmanager
def on_command_line(paths: Sequence[str]) -> Iterator[None]:
    """While a command runs with `--plugin PATH ...`: results say so in the command that they record."""
    before, _on_command_line[:] = list(_on_command_line), paths
    try:
        yield
    finally:
        _on_command_line[:] = before


def plugin_words() -> list[str]:
    """`--plugin PATH ...` as this command was given it."""
    return [word for path in _on_command_line for word in ("--plugin", path)]
