"""The published checkpoints of MDLM and SEDD: their folder or hub id in, a denoiser out.

    published:kuleshov-group/mdlm-owt     config.json, model.safetensors       Sahoo et al. (2024)
    published:louaaron/sedd-small         config.json, pytorch_model.bin       Lou et al. (2024), absorbing

Both are one bidirectional Transformer that reads sigma in every norm. The shape is read off the tensors; config.json
says what they cannot: the family, the number of heads, the longest canvas. The layout is that of models/dit.py in
kuleshov-group/mdlm and model/transformer.py in louaaron/Score-Entropy-Discrete-Diffusion.

Text tokens are GPT-2's 50,257 and MASK is the row behind them, where our CURSOR is. Nothing pads: <|endoftext|>
stands between the documents they were trained on, so a text ends at the first, as ours end at the first padding.

>>> load_published("published:louaaron/sedd-small").config.num_layers  # doctest: +SKIP
12
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser import tokenizer as tokenizers
from reviser.config import ModelConfig
from reviser.diffusion.denoiser import FREQUENCIES, Denoiser, sigma, sinusoids
from reviser.errors import CheckpointError
from reviser.model.attention import Kernel, Layout
from reviser.model.author import _shape, read_tensors
from reviser.model.checkpoint import check_tokenizer, read_weights
from reviser.model.folder import CONFIG, WEIGHTS, find
from reviser.model.layers import Mlp, rotation
from reviser.model.transformer import BLIND, Block
from reviser.tokenizer import Tokenizer

PREFIX = "published:"
PICKLED = "pytorch_model.bin"
"""Where older versions of the hub's client put weights; read without executing anything."""
TOKENIZER = "gpt2"
THETA = 10000.0

WRAPPER = re.compile(r"^backbone\.")
LAYER = re.compile(r"blocks\.(\d+)\.")
ROTARY = "rotary_emb.inv_freq"
EMBEDDING, CONDITION, FIRST_MLP = "vocab_embed.embedding", "sigma_map.mlp.2.weight", "blocks.0.mlp.0.weight"

MODEL = {EMBEDDING: "embedding.weight", "output_layer.norm_final.weight": "norm.weight"}
"""Their names to ours."""
BLOCK = {"norm1.weight": "attention_norm.weight", "norm2.weight": "mlp_norm.weight"}
"""Their names inside a block to ours."""
BLOCK |= {"attn_qkv.weight": "attention.qkv.weight", "attn_out.weight": "attention.out.weight"}
for _part in ("weight", "bias"):
    MODEL |= {f"sigma_map.mlp.{layer}.{_part}": f"waves.{layer}.{_part}" for layer in (0, 2)}
    MODEL |= {f"output_layer.linear.{_part}": f"head.{_part}"}
    MODEL |= {f"output_layer.adaLN_modulation.{_part}": f"last.{_part}"}
    BLOCK |= {f"mlp.0.{_part}": f"mlp.up.{_part}", f"mlp.2.{_part}": f"mlp.down.{_part}"}


@dataclass(frozen=True, slots=True)
class Described:
    """What config.json says and the tensors do not."""

    family: str
    num_heads: int
    context: int
    is_timed: bool
    """Whether the network is given sigma; otherwise it is given 0."""
    is_scaled: bool
    """SEDD's `scale_by_sigma`: whether e^sigma - 1 and the number of tokens are divided out behind the head."""


class TanhMlp(Mlp):
    """With the approximate GELU."""

    def _activate(self, x: Tensor) -> Tensor:
        return F.gelu(self.up(x), approximate="tanh")


class Published(Denoiser):
    """What the two share, to be evaluated and not trained; one of them is made, never this."""

    def __init__(self, config: ModelConfig, condition: int, described: Described) -> None:
        super().__init__(config)
        d, rows = config.width, config.num_text + 1
        self.is_timed, self.is_scaled = described.is_timed, described.is_scaled
        self.embedding, self.head, self.norm = nn.Embedding(rows, d), nn.Linear(d, rows), _norm(d)
        self.waves = nn.Sequential(nn.Linear(FREQUENCIES, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.modulations = nn.ModuleList(nn.Linear(condition, 6 * d) for _ in self.blocks)
        self.last = nn.Linear(condition, 2 * d)
        for block in self.blocks:
            own = cast(Block, block)
            own.attention_norm, own.mlp_norm, own.mlp = _norm(d), _norm(d), TanhMlp(config)

    def _pass(self, tokens: Tensor, positions: Tensor, kernel: Kernel, levels: Tensor | None) -> Tensor:
        # Sums between layers stay in float32 under autocast, as theirs do.
        x, turn, condition = self.embedding(tokens), rotation(positions, self.config), self._condition(tokens, levels)
        for block, modulation in zip(self.blocks, self.modulations, strict=True):
            shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation(condition).chunk(6, dim=-1)
            own = cast(Block, block)
            x = x + gate * own.attention(own.attention_norm(x) * (1 + scale) + shift, turn, kernel)
            x = x + mlp_gate * own.mlp(own.mlp_norm(x) * (1 + mlp_scale) + mlp_shift)
        shift, scale = self.last(condition).chunk(2, dim=-1)
        return cast(Tensor, self.norm(x) * (1 + scale) + shift)

    def _condition(self, tokens: Tensor, levels: Tensor | None) -> Tensor:
        """[B, 1, c] what is made of sigma."""
        values = torch.zeros(len(tokens), device=tokens.device)
        if self.is_timed:
            if levels is None:
                raise ValueError("this model reads the noise level of each row; give levels")
            values = sigma(levels)
        with torch.autocast(tokens.device.type, enabled=False):
            return F.silu(self.waves(sinusoids(values).to(self.embedding.weight.dtype)))[:, None]

    def logits(self, hidden: Tensor) -> Tensor:
        """[.., d] to [.., V], MASK left out."""
        assert self.head is not None
        return cast(Tensor, self.head(hidden))[..., : self.config.num_text]

    @torch.no_grad()
    def log_scores(self, tokens: Tensor, levels: Tensor, layout: Layout, chosen: Tensor) -> Tensor:
        picked = self.hidden(tokens, BLIND, layout, levels).flatten(0, 1).index_select(0, chosen)
        return self.log_shares(self.logits(picked).float())


class PublishedMdlm(Published):
    family = "mdlm"

    def log_shares(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(dim=-1)


class PublishedSedd(Published):
    """Its network gives log ratios to MASK, which are log m - log(e^sigma - 1).

    With `scale_by_sigma` the head's scores are log m + log V, like those of our own SEDD; without, the log ratios.
    """

    family = "sedd"

    def log_shares(self, logits: Tensor) -> Tensor:
        return logits - math.log(self.config.num_text) if self.is_scaled else logits

    def log_scores(self, tokens: Tensor, levels: Tensor, layout: Layout, chosen: Tensor) -> Tensor:
        found = super().log_scores(tokens, levels, layout, chosen)
        if self.is_scaled:
            return found
        return found + sigma(levels).expm1().log()[chosen // tokens.shape[1], None]


KINDS: dict[str, type[Published]] = {kind.family: kind for kind in (PublishedMdlm, PublishedSedd)}


def is_published(spec: str | os.PathLike[str]) -> bool:
    """Whether it is written published:FOLDER_OR_HUB_ID."""
    return str(spec).startswith(PREFIX)


def load_published(
    spec: str | os.PathLike[str], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Published:
    """The denoiser of a published folder or hub id, ready to evaluate."""
    described, file = describe(spec), weights_file(spec)
    tensors = read_weights(file) if file.name == WEIGHTS else read_tensors(file)
    tensors = {WRAPPER.sub("", name): tensor for name, tensor in tensors.items()}
    config = infer_config(tensors, described, str(file))
    with torch.device("meta"):
        model = KINDS[described.family](config, _shape(tensors, CONDITION, str(file))[0], described)
    model.load_state_dict(rename(tensors, model, str(file)), assign=True)
    return model.to(device, dtype).eval().requires_grad_(False)


def published_tokenizer() -> Tokenizer:
    """GPT-2's; a model with another vocabulary is refused when it is loaded."""
    return tokenizers.load(TOKENIZER)


def describe(spec: str | os.PathLike[str]) -> Described:
    """What the checked config.json of a published folder or hub id says."""
    path = find(_place(spec)) / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{path} is missing; a published folder holds it beside the weights")
    try:
        values = json.loads(path.read_text("utf-8"))
        if values.get("model_type") == "mdlm":
            is_timed = bool(values["time_conditioning"])
            return Described("mdlm", int(values["n_heads"]), int(values["model_length"]), is_timed, False)
        if "graph" in values and values["graph"]["type"] == "absorb":
            shape = values["model"]
            is_scaled = bool(shape["scale_by_sigma"])
            return Described("sedd", int(shape["n_heads"]), int(shape["length"]), True, is_scaled)
    except KeyError as error:
        raise CheckpointError(f"{path} has no {error.args[0]}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not describe a model: {error}") from error
    raise CheckpointError(f"{path} is neither MDLM's (model_type mdlm) nor that of SEDD absorb (graph.type absorb)")


def weights_file(spec: str | os.PathLike[str]) -> Path:
    """Where the weights lie; fetched where it is a hub id."""
    place = _place(spec)
    folder = find(place)
    found = [folder / name for name in (WEIGHTS, PICKLED) if (folder / name).is_file()]
    if found:
        return found[0]
    if Path(place).is_dir():
        raise CheckpointError(f"{folder} holds neither {WEIGHTS} nor {PICKLED}")
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(place, PICKLED))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{place}: no {WEIGHTS}, and {PICKLED} is missing or cannot be reached: {reason}"
        ) from error


def infer_config(tensors: Mapping[str, Tensor], described: Described, file: str) -> ModelConfig:
    """The model's shape, read off the tensors; the last text token is <|endoftext|>, as in GPT-2."""
    rows, width = _shape(tensors, EMBEDDING, file)
    ff_width, _ = _shape(tensors, FIRST_MLP, file)
    config = ModelConfig(
        num_text=rows - 1,
        pad=rows - 2,
        num_layers=1 + max(int(match[1]) for name in tensors if (match := LAYER.match(name))),
        width=width,
        num_heads=described.num_heads,
        ff_width=ff_width,
        context=described.context,
        max_length=described.context,
        norm="layer",
        qk_norm=False,
        activation="gelu",
        rope_theta=THETA,
        tied=False,
    )
    check_tokenizer(config, published_tokenizer())
    wanted = THETA ** -(torch.arange(0, config.head_width, 2) / config.head_width)
    rates = tensors.get(ROTARY, wanted).float()
    if rates.shape != wanted.shape or not torch.allclose(rates, wanted, rtol=1e-4):
        heads = f"{config.num_heads} heads and theta {THETA:.0f}"
        raise CheckpointError(f"{file}: tensor {ROTARY} is not that of {heads}")
    return config


def rename(tensors: Mapping[str, Tensor], model: Published, file: str) -> dict[str, Tensor]:
    """The tensors under our names; a missing, unknown or misshapen one is named as the file names it."""
    pairs, wanted = names(model.config.num_layers), model.state_dict()
    for name in sorted(pairs.keys() ^ (tensors.keys() - {ROTARY})):
        problem = "is missing" if name in pairs else "is not part of the published layout"
        raise CheckpointError(f"{file}: tensor {name} {problem}")
    for name, ours in pairs.items():
        given, shape = tuple(tensors[name].shape), tuple(wanted[ours].shape)
        if given != shape:
            raise CheckpointError(f"{file}: tensor {name} has the shape {given}, but its other tensors imply {shape}")
    return {ours: tensors[name] for name, ours in pairs.items()}


def names(num_layers: int) -> dict[str, str]:
    """Every tensor that a file with `num_layers` layers holds, except rotary tables, with our name for it."""
    pairs = dict(MODEL)
    for layer in range(num_layers):
        pairs |= {f"blocks.{layer}.{theirs}": f"blocks.{layer}.{ours}" for theirs, ours in BLOCK.items()}
        for part in ("weight", "bias"):
            pairs[f"blocks.{layer}.adaLN_modulation.{part}"] = f"modulations.{layer}.{part}"
    return pairs


def _place(spec: str | os.PathLike[str]) -> str:
    return str(spec).removeprefix(PREFIX)


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=1e-5, bias=False)
