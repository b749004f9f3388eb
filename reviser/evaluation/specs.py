"""Systems as the command line and Python name them.

    shipped                              the model that comes with the package
    ours=runs/mine                       a model folder, the run that trains it, or a hub id
    warm=runs/mine,temperature=1.1       with settings of sampling
    still=runs/mine,moves=false          with the cursor forbidden to move
    alone=runs/mine,sees=prefix          fills gaps from what stands before them alone
    ahead=runs/mine,out_of_order=true    told to write out of order
    four=runs/mine,best_of=4             writes four texts and keeps the best
    mdlm=runs/mdlm,steps=32              a diffusion model and its number of steps
    gpt2=hf:openai-community/gpt2        a causal model of `transformers`
    sedd=published:louaaron/sedd-small   the published MDLM or SEDD

>>> SystemSpec.parse("mdlm=runs/mdlm,steps=32").steps
32
>>> SystemSpec.parse("shipped").name
'shipped'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reviser.errors import ConfigError

SHIPPED = "shipped"
TRANSFORMERS, PUBLISHED = "hf:", "published:"
BOTH, PREFIX = VIEWS = ("both", "prefix")
"""What a system is shown of the text around a gap."""
NOT_SAMPLING = ("steps=", "sees=", "out_of_order=", "best_of=")
EXAMPLES = "shipped, ours=runs/mine or gpt2=hf:gpt2"


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """A system's name, where its model is, and what is changed about how it writes."""

    name: str
    model: str
    changes: tuple[str, ...] = ()
    """Settings as name=value, `steps` of a diffusion model, `sees`, `out_of_order` and `best_of` of a model that
    edits among them."""

    @classmethod
    def parse(cls, text: str, option: str = "--system") -> SystemSpec:
        if text == SHIPPED:
            return cls(SHIPPED, SHIPPED)
        name, is_given, rest = text.partition("=")
        model, *changes = rest.split(",")
        if not (name and is_given and model):
            raise ConfigError(f"{option} {text} is not NAME=MODEL; write {EXAMPLES}")
        spec = cls(name, model, tuple(changes))
        spec.check(f"{option} {text}")
        return spec

    def check(self, who: str) -> None:
        """Refuse numbers, views and answers that are none."""
        if self._sees not in ("", *VIEWS):
            raise ConfigError(f"{who}: sees={self._sees} must be one of {', '.join(VIEWS)}")
        if (told := self._last("out_of_order=")) not in ("", "true", "false"):
            raise ConfigError(f"{who}: out_of_order={told} must be true or false")
        for name, given in (("steps", self._steps), ("best_of", self._last("best_of="))):
            if given and not (given.isdecimal() and int(given) > 0):
                raise ConfigError(f"{who}: {name}={given} must be a whole number of at least 1")

    @property
    def text(self) -> str:
        """As it is written."""
        if self == SystemSpec(SHIPPED, SHIPPED):
            return SHIPPED
        return f"{self.name}={','.join([self.model, *self.changes])}"

    @property
    def is_transformers(self) -> bool:
        return self.model.startswith(TRANSFORMERS)

    @property
    def is_published(self) -> bool:
        return self.model.startswith(PUBLISHED)

    @property
    def is_folder(self) -> bool:
        """Whether it is a model of our own kind, of which everything can be measured."""
        return not (self.is_transformers or self.is_published)

    @property
    def path(self) -> Path:
        """Where the model lies, if it lies on this machine."""
        return Path(self.model.removeprefix(TRANSFORMERS).removeprefix(PUBLISHED))

    @property
    def _steps(self) -> str:
        return self._last("steps=")

    @property
    def steps(self) -> int | None:
        """Of a diffusion model."""
        return int(self._steps) if self._steps else None

    @property
    def _sees(self) -> str:
        return self._last("sees=")

    @property
    def sees_suffix(self) -> bool | None:
        """Whether a gap is filled with both sides in view; None leaves that to what the model has learned."""
        return self._sees == BOTH if self._sees else None

    @property
    def out_of_order(self) -> bool:
        """Whether continuations are told to be written out of order."""
        return self._last("out_of_order=") == "true"

    @property
    def best_of(self) -> int:
        """How many texts are written for each that is kept."""
        return int(self._last("best_of=") or 1)

    @property
    def of_writing(self) -> str:
        """A setting that says how texts are written, if there is one; what only reads texts refuses it."""
        return "out_of_order" if self.out_of_order else "best_of" if self.best_of > 1 else ""

    @property
    def sampling(self) -> list[str]:
        """The settings of sampling, as name=value."""
        return [change for change in self.changes if not change.startswith(NOT_SAMPLING)]

    def _last(self, name: str) -> str:
        found = [change.removeprefix(name) for change in self.changes if change.startswith(name)]
        return found[-1] if found else ""


def parse_systems(texts: Iterable[str], option: str = "--system") -> list[SystemSpec]:
    """Several systems, each under a name of its own."""
    specs: dict[str, SystemSpec] = {}
    for text in texts:
        spec = SystemSpec.parse(text, option)
        if spec.name in specs:
            raise ConfigError(f"{option} names {spec.name} twice; give one of the two another name")
        specs[spec.name] = spec
    return list(specs.values())
