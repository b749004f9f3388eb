"""Arguments of the Python API, checked before anything is computed with them: one line for each that cannot be used.

>>> check_whole("n", "a")
Traceback (most recent call last):
reviser.errors.ConfigError: n='a' must be a whole number
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any, Literal, get_args

from reviser.errors import ConfigError

Weights = Literal["auto", "int8", "float32"]
"""What a model's steps compute with."""
MAX_WHOLE = 2**31 - 1
"""The largest number that is counted with; kernels hold no more."""


def check_whole(name: str, value: Any) -> int:
    """A whole number of any type, numpy's too, as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}={value!r} must be a whole number") from None


def check_size(name: str, value: Any) -> int:
    """A whole number of things; none is allowed.

    >>> check_size("min_tokens", 10**30)
    Traceback (most recent call last):
    reviser.errors.ConfigError: min_tokens=1000000000000000000000000000000 must be at most 2147483647
    """
    size = check_whole(name, value)
    if size < 0:
        raise ConfigError(f"{name}={size} must be 0 or more")
    if size > MAX_WHOLE:
        raise ConfigError(f"{name}={size} must be at most {MAX_WHOLE}")
    return size


def check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real):
        raise ConfigError(f"{name}={value!r} must be a number")


def check_switch(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} must be True or False")


def check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}, of type {type(value).__name__}; give a text (str)")
    return value


def check_weights(value: Any) -> None:
    if value not in get_args(Weights):
        raise ConfigError(f"weights={value!r} must be 'auto', 'int8' or 'float32'")


def check_device(name: Any, option: str = "device") -> None:
    """Refuse what is no device of this machine; `option` is what the user calls it."""
    if name == "cpu":
        return
    import torch

    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type != "cpu" and (device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(f"{option} {name} is not usable here; write cpu, or cuda where there is a GPU")


def list_prompts(prompts: Any) -> list[str]:
    if isinstance(prompts, str):
        return [prompts]
    try:
        return list(prompts)
    except TypeError:
        raise ConfigError(
            f"prompts is {prompts!r}, of type {type(prompts).__name__}; give a text (str) or a list of texts"
        ) from None


def check_all_whole(**values: Any) -> tuple[int, ...]:
    return tuple(check_whole(name, value) for name, value in values.items())


def check_counts(n: Any, best_of: Any, max_actions: Any, seed: Any) -> tuple[int, ...]:
    counts = check_all_whole(n=n, best_of=best_of, max_actions=max_actions, seed=seed)
    if min(counts[:2]) < 1:
        raise ConfigError(f"n={n} and best_of={best_of} must be at least 1")
    if counts[2] < 1:
        raise ConfigError(f"max_actions={max_actions} must be at least 1")
    return counts
