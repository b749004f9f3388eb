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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from reviser.errors import ConfigError

Entry = TypeVar("Entry")
VARIABLE = "REVISER_PLUGINS"
"""Files that this process and those it starts have loaded, as a path list."""
NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Registry(Generic[Entry]):
    """Entries by name, of one kind; `group` is the entry point group in which packages announce theirs."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._entries: dict[str, Entry] = {}
        self._has_packages = False

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """A decorator that adds what it decorates; the same name twice is an error."""

        def add(entry: Entry) -> Entry:
            self.add(name, entry)
            return entry

        return add

    def add(self, name: str, entry: Entry) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(f"{self.kind} {name!r}: a name has lower-case letters, digits, '-' and '_'; rename it")
        known = self._entries.get(name)
        if known is not None and not _is_same(known, entry):
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

    def _load_packages(self) -> None:
        if self._has_packages:
            return
        self._has_packages = True
        for point in importlib.metadata.entry_points(group=self.group):
            try:
                self.add(point.name, point.load())
            except Exception as error:
                raise ConfigError(
                    f"the {self.kind} {point.name!r} of the package that provides {point.value} cannot be loaded "
                    f"({type(error).__name__}: {error}); fix or uninstall that package"
                ) from error


def _is_same(one: object, other: object) -> bool:
    """Whether a file that is loaded a second time, in a notebook or a worker, defines the same thing again."""
    names = ("__module__", "__qualname__")
    return all(getattr(one, name, one) == getattr(other, name, other) for name in names)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Run a Python file that registers something; processes started from here run it too."""
    file = Path(path).resolve()
    name = f"reviser_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ConfigError(f"--plugin {path}: no such Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise ConfigError(f"--plugin {path} does not run ({type(error).__name__}: {error}); fix it") from error
    loaded = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    if str(file) not in loaded:
        os.environ[VARIABLE] = os.pathsep.join([*loaded, str(file)])


def load_inherited() -> None:
    """Run the files that the process which started this one has run."""
    for each in os.environ.get(VARIABLE, "").split(os.pathsep):
        if each:
            load_plugin(each)
