"""A tiny random stream that Python and the kernels step alike: SplitMix64 (Steele, Lea, Flood 2014).

A stream is one 64-bit number, made from any number of integers, so (seed, epoch, document) names a
stream and a trajectory can be drawn again anywhere.

>>> Random.of(1, 2, 3).below(10) == Random.of(1, 2, 3).below(10)
True
"""

from __future__ import annotations

from reviser.errors import ConfigError

MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's finaliser: a bijection of 64-bit numbers that scatters them."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def threshold(probability: float) -> int:
    """The number below which 32 random bits fall with that probability."""
    return round(probability * (1 << 32))


def check_probability(name: str, value: float, low: float = 0.0, high: float = 1.0) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name}={value} is not a probability between {low:g} and {high:g}")


class Random:
    """A stream of random numbers; `state` is all there is to it."""

    __slots__ = ("state",)

    def __init__(self, state: int) -> None:
        self.state = state & MASK64

    @classmethod
    def of(cls, *parts: int) -> Random:
        """The stream named by some integers; order matters."""
        state = 0
        for part in parts:
            state = mix((state + GOLDEN + (part & MASK64)) & MASK64)
        return cls(state)

    def bits32(self) -> int:
        self.state = (self.state + GOLDEN) & MASK64
        return mix(self.state) >> 32

    def below(self, count: int) -> int:
        """A whole number from 0 to count-1; its bias is below count / 2^32."""
        return (self.bits32() * count) >> 32

    def chance(self, limit: int) -> bool:
        """True with the probability whose `threshold` is given."""
        return self.bits32() < limit
