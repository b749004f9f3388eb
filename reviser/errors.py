"""Every error a user can cause, in one tree.

    ReviserError                  one line: what was wrong, what is allowed, what to do
    ├── ActionError               an action that is not valid in its state
    ├── UnreachableError          no script of the enabled operators leads to the target
    ├── ConfigError               a setting that does not exist or cannot have that value
    ├── DataError                 a file, shard or text that cannot be read
    │   └── TrajectoryError       a trajectory record that does not replay
    ├── TokenizerError            no such tokenizer, or text it cannot represent
    ├── DivergenceError           a training run whose loss is not a number any more
    ├── CheckpointError           a model or run folder that is missing, damaged or of another shape
    ├── HubError                  the hub of models cannot be reached, or refuses
    ├── ClusterError              a cluster that cannot be reached, has no room, or whose processes die
    └── MissingPackageError       an optional package is needed; names the command that installs it

The command line prints `error: <text>` and exits with 2; `--debug` shows the traceback.
"""

from __future__ import annotations


def make_visible(text: str) -> str:
    """Control characters, direction marks and lone surrogates as backslash escapes, which no terminal obeys.

    >>> make_visible("red: \\x1b[31m, caf\\u00e9")
    'red: \\\\x1b[31m, café'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode("ascii")
        for each in text
    )


class ReviserError(Exception):
    """Base of all errors with a text meant for the user."""


class ActionError(ReviserError):
    """An action is not valid in the state it was applied to; the state is unchanged."""


class UnreachableError(ReviserError):
    """The target cannot be reached from the canvas with the enabled operators."""


class ConfigError(ReviserError):
    """A setting does not exist or its value is not allowed."""


class DataError(ReviserError):
    """Input data is missing, unreadable or damaged."""


class TrajectoryError(DataError):
    """A trajectory record is malformed or does not replay."""


class TokenizerError(ReviserError):
    """A tokenizer cannot be loaded, or cannot represent a text."""


class DivergenceError(ReviserError):
    """A training run's loss or gradient is not a number any more."""


class CheckpointError(ReviserError):
    """A model or run folder is missing, damaged or of another shape."""


class HubError(ReviserError):
    """The hub of models cannot be reached, refuses, or sends something else than it said."""


class ClusterError(ReviserError):
    """A cluster cannot be reached, has no room, or its processes die of the work."""


class MissingPackageError(ReviserError):
    """An optional package is not installed."""

    def __init__(self, package: str, needed_for: str, install: str) -> None:
        super().__init__(f"{needed_for} needs the package {package}, which is not installed; run: {install}")

    def __reduce__(self) -> tuple[type[ReviserError], tuple[object, ...]]:
        # What another process raised is read with its text alone.
        return ReviserError, self.args
