"""The published MDLM and SEDD: tiny random checkpoints in their layout, against a plain pass by tensor name."""

import json

import huggingface_hub
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from reviser.cli import main
from reviser.decoding.sampling import Sampling
from reviser.diffusion import published
from reviser.diffusion.denoiser import Denoiser, sigma
from reviser.diffusion.denoiser_folder import family_of, load_model, load_tokenizer
from reviser.diffusion.published import load_published, names, weights_file
from reviser.errors import CheckpointError, ConfigError, TokenizerError
from reviser.evaluation.generations import Prompt, read_generations
from reviser.evaluation.metrics.likelihood import measure
from reviser.evaluation.systems import Budget, DiffusionSystem, open_system
from reviser.files import hash_file
from reviser.model.attention import Layout
from reviser.tokenizer import load

V, WIDTH, HEADS, UNITS, COND, LAYERS, LENGTH = 257, 24, 3, 96, 10, 2, 64
MASK, END = V, V - 1
BOTH = pytest.mark.parametrize("family", ["mdlm", "sedd"])
PROMPTS = [Prompt("p:0", "One day ", " and then some.", " The end."), Prompt("p:1", "It was", " not so.")]


@pytest.fixture(autouse=True)
def _bytes(monkeypatch):
    monkeypatch.setattr(published, "TOKENIZER", "bytes")


def tensors_of(seed=0):
    """Every tensor by its published name, all random: their zeros at first would hide mistakes."""
    draw = np.random.default_rng(seed)

    def random(*shape):
        return torch.tensor(draw.normal(scale=shape[-1] ** -0.5, size=shape), dtype=torch.float32)

    d = WIDTH
    made = {"vocab_embed.embedding": random(V + 1, d) * 3, "rotary_emb.inv_freq": 1e4 ** -(torch.arange(4) / 4)}
    made |= {"sigma_map.mlp.0.weight": random(COND, 256), "sigma_map.mlp.0.bias": random(COND)}
    made |= {"sigma_map.mlp.2.weight": random(COND, COND), "sigma_map.mlp.2.bias": random(COND)}
    for layer in range(LAYERS):
        block = {"norm1.weight": 1 + random(d), "norm2.weight": 1 + random(d)}
        block |= {"attn_qkv.weight": random(3 * d, d), "attn_out.weight": random(d, d)}
        block |= {"mlp.0.weight": random(UNITS, d), "mlp.0.bias": random(UNITS)}
        block |= {"mlp.2.weight": random(d, UNITS), "mlp.2.bias": random(d)}
        block |= {"adaLN_modulation.weight": random(6 * d, COND), "adaLN_modulation.bias": random(6 * d)}
        made |= {f"blocks.{layer}.{name}": tensor for name, tensor in block.items()}
    made |= {"output_layer.norm_final.weight": 1 + random(d)}
    made |= {"output_layer.linear.weight": random(V + 1, d), "output_layer.linear.bias": random(V + 1)}
    made |= {"output_layer.adaLN_modulation.weight": random(2 * d, COND)}
    return made | {"output_layer.adaLN_modulation.bias": random(2 * d)}


def config_of(family, **changes):
    if family == "mdlm":
        shape = {"hidden_dim": WIDTH, "cond_dim": COND, "n_blocks": LAYERS, "n_heads": HEADS, "vocab_size": V + 1}
        shape |= {"model_length": LENGTH, "model_type": "mdlm", "dropout": 0.1, "time_conditioning": False}
        return shape | changes
    shape = {"hidden_size": WIDTH, "cond_dim": COND, "n_blocks": LAYERS, "n_heads": HEADS, "length": LENGTH}
    shape |= {"type": "ddit", "scale_by_sigma": True, "dropout": 0.1}
    return {"tokens": V, "graph": {"type": "absorb"}, "noise": {"type": "loglinear"}, "model": shape | changes}


def write(folder, family, tensors=None, is_pickled=None, **changes):
    """A folder as published: MDLM's tensors in safetensors and inside a backbone, SEDD's in a .bin and not."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(config_of(family, **changes)))
    tensors = tensors_of() if tensors is None else tensors
    if family == "mdlm":
        tensors = {f"backbone.{name}": tensor for name, tensor in tensors.items()}
    if (family == "sedd") if is_pickled is None else is_pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return f"published:{folder}"


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    root = tmp_path_factory.mktemp("published")
    made = {family: write(root / family, family) for family in ("mdlm", "sedd")}
    timed, bare = {"time_conditioning": True}, {"scale_by_sigma": False}
    return made | {
        "mdlm timed": write(root / "timed", "mdlm", **timed),
        "sedd bare": write(root / "bare", "sedd", **bare),
    }


def plain_pass(tensors, canvas, sigmas):
    """[B, T] canvases and [B] sigmas to [B, T, V + 1] scores of the head: float64, a canvas and a head at a time."""
    w = {name: tensor.double().numpy() for name, tensor in tensors.items()}

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def silu(x):
        return x / (1 + np.exp(-x))

    def norm(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * w[f"{name}.weight"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def turn(x):
        """[T, D]: the pair (j, j + D/2) as one complex number, turned by place times rate j."""
        half = x.shape[1] // 2
        rates = 10000.0 ** (-np.arange(half) / half)
        turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(np.arange(len(x)), rates))
        return np.concatenate([turned.real, turned.imag], axis=1)

    def attend(x, name):
        queries, keys, values = np.split(x @ w[f"{name}.attn_qkv.weight"].T, 3, axis=1)
        D, parts = WIDTH // HEADS, []
        for h in range(HEADS):
            q, k, v = (each[:, h * D : (h + 1) * D] for each in (queries, keys, values))
            scores = np.exp(turn(q) @ turn(k).T / np.sqrt(D))
            parts.append(scores / scores.sum(axis=1, keepdims=True) @ v)
        return linear(np.concatenate(parts, axis=1), f"{name}.attn_out")

    def one(tokens, value):
        angles = value * np.exp(-np.log(10000.0) * np.arange(128) / 128)
        waves = np.concatenate([np.cos(angles), np.sin(angles)])
        told = silu(linear(silu(linear(waves, "sigma_map.mlp.0")), "sigma_map.mlp.2"))
        x = w["vocab_embed.embedding"][tokens]
        for layer in range(LAYERS):
            name = f"blocks.{layer}"
            shift, scale, gate, shift2, scale2, gate2 = np.split(linear(told, f"{name}.adaLN_modulation"), 6)
            x = x + gate * attend(norm(x, f"{name}.norm1") * (1 + scale) + shift, name)
            units = gelu(linear(norm(x, f"{name}.norm2") * (1 + scale2) + shift2, f"{name}.mlp.0"))
            x = x + gate2 * linear(units, f"{name}.mlp.2")
        shift, scale = np.split(linear(told, "output_layer.adaLN_modulation"), 2)
        return linear(norm(x, "output_layer.norm_final") * (1 + scale) + shift, "output_layer.linear")

    return np.stack([one(*each) for each in zip(canvas, sigmas, strict=True)])


def log_softmax(scores):
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


canvases = st.lists(
    st.lists(st.one_of(st.integers(0, V), st.just(MASK)), min_size=9, max_size=9), min_size=1, max_size=3
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(canvas=canvases, level=st.floats(0.01, 1.0))
def test_every_kind_computes_what_the_tensors_say(specs, canvas, level):
    tokens, levels = torch.tensor(canvas), torch.tensor([level, *[0.3] * (len(canvas) - 1)])
    # Rounded to float32, where 1 - 0.999 has lost four digits; else only float64's own error is left.
    sigmas = sigma(levels).double().numpy()
    np.testing.assert_allclose(sigmas, -np.log1p(-0.999 * levels.double().numpy()), rtol=1e-4)
    layout, chosen = Layout.of(torch.zeros_like(tokens)), torch.arange(tokens.numel())
    told, untold = plain_pass(tensors_of(), canvas, sigmas), plain_pass(tensors_of(), canvas, 0 * sigmas)
    wanted = {
        "mdlm": log_softmax(untold[..., :V]),
        "mdlm timed": log_softmax(told[..., :V]),
        "sedd": told[..., :V] - np.log(V),
        "sedd bare": told[..., :V] + np.log(np.expm1(sigmas))[:, None, None],
    }
    for kind, scores in wanted.items():
        for dtype, error in ((torch.float64, 1e-5), (torch.float32, 1e-4)):
            found = load_published(specs[kind], dtype=dtype).log_scores(tokens, levels, layout, chosen)
            assert found.dtype == torch.float32
            np.testing.assert_allclose(found.numpy(), scores.reshape(-1, V), atol=error)


def test_the_score_of_sedd_is_m_over_what_the_noise_makes_of_it(specs):
    # The log score of their code with scale_by_sigma: the head's, less log(e^sigma - 1), less log of the text tokens.
    canvas, levels = [[3, MASK, 7, MASK]], torch.tensor([0.4])
    value = float(sigma(levels))
    log_ratio = plain_pass(tensors_of(), canvas, [value])[0, 1, :V] - np.log(np.exp(value) - 1) - np.log(V)
    model, layout = load_published(specs["sedd"]), Layout.of(torch.zeros(1, 4))
    m = model.log_scores(torch.tensor(canvas), levels, layout, torch.tensor([1])).exp()[0].numpy()
    np.testing.assert_allclose(m / (np.exp(value) - 1), np.exp(log_ratio), rtol=1e-4)


@BOTH
def test_canvases_of_a_packed_row_do_not_see_each_other(family, specs):
    model, tokens = load_published(specs[family]), torch.tensor([[5, MASK, 9, MASK, 8, 7, MASK]])
    levels, layout = torch.tensor([0.7]), Layout.of(torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    packed = model.log_scores(tokens, levels, layout, torch.tensor([3, 6]))
    alone = model.log_scores(tokens[:, 3:], levels, Layout.of(torch.zeros(1, 4)), torch.tensor([0, 3]))
    torch.testing.assert_close(packed, alone)


@BOTH
def test_the_names_and_the_shape_are_those_of_the_file(family, specs):
    model = load_published(specs[family])
    assert names(LAYERS).keys() | {"rotary_emb.inv_freq"} == tensors_of().keys()
    assert isinstance(model, Denoiser)
    config = model.config
    assert (config.num_text, config.pad, config.alphabet.none) == (V, END, MASK)
    assert (config.num_layers, config.width, config.num_heads, config.ff_width) == (LAYERS, WIDTH, HEADS, UNITS)
    assert (config.context, config.max_length, model.is_timed) == (LENGTH, LENGTH, family == "sedd")
    stored = sum(tensor.numel() for name, tensor in tensors_of().items() if "rotary" not in name)
    assert sum(each.numel() for each in model.parameters()) == stored


@BOTH
def test_a_file_of_either_kind_says_the_same_and_may_lack_rotary_tables(family, specs, tmp_path):
    bare = {name: tensor for name, tensor in tensors_of().items() if "rotary" not in name}
    other = load_published(write(tmp_path / "other", family, bare, is_pickled=family == "mdlm"))
    for name, tensor in load_published(specs[family]).state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


@BOTH
def test_a_system_writes_into_a_gap_and_sees_both_sides(family, specs):
    system = open_system(f"it={specs[family]},steps=5", Sampling(), Budget(12))
    assert isinstance(system, DiffusionSystem)
    assert (system.steps, system.model.family) == (5, family)
    made = list(system.generate(PROMPTS, 3))
    assert made[1] == next(iter(system.generate(PROMPTS[1:], 3)))
    assert all(each.num_tokens <= 40 and 1 <= each.num_actions <= 5 for each in made)
    for name in ("prefix", "suffix"):
        sides = {"prefix": PROMPTS[1].prefix, "suffix": PROMPTS[1].suffix} | {name: "Zebra "}
        changed = Prompt("p:1", sides["prefix"], PROMPTS[1].reference, sides["suffix"])
        assert next(iter(system.generate([changed], 3))).text != made[1].text


@BOTH
def test_a_text_ends_at_the_first_end_of_text_and_never_holds_a_mask(family, tmp_path):
    for token, ends in ((END, True), (65, False)):
        tensors = tensors_of()
        tensors["output_layer.linear.bias"][[MASK, token]] = torch.tensor([99.0, 50.0])
        system = open_system(f"it={write(tmp_path / str(token), family, tensors)},steps=4", Sampling(), Budget(12))
        made = next(iter(system.generate(PROMPTS[:1], 0)))
        assert (made.text == "", made.is_stopped) == (ends, ends)
        assert set(made.text) <= {"A"}


@BOTH
def test_the_bound_of_a_model_that_knows_nothing_is_uniform(family, tmp_path):
    tensors = tensors_of() | {"output_layer.linear.weight": torch.zeros(V + 1, WIDTH)}
    tensors |= {"output_layer.linear.bias": torch.zeros(V + 1)}
    spec = write(tmp_path / "even", family, tensors)
    assert family_of(spec) == family
    row = measure(load_model(spec), load_tokenizer(spec), None, PROMPTS, samples=2)
    lengths = [len(prompt.reference.encode()) for prompt in PROMPTS]
    assert row["order"] == family
    assert row["nats_per_token"] == pytest.approx(2 * (max(lengths) + 1) * np.log(V) / sum(lengths), rel=1e-5)


def test_weights_of_a_hub_id_are_fetched_from_either_file(tmp_path, monkeypatch):
    fetched = []

    def snapshot(hub_id, allow_patterns):
        fetched.append((hub_id, "config.json" in allow_patterns))
        return str(tmp_path / "hub")

    def download(hub_id, file):
        fetched.append((hub_id, file))
        return str(tmp_path / "elsewhere" / file)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    write(tmp_path / "elsewhere", "sedd")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text(json.dumps(config_of("sedd")))
    assert load_published("published:someone/sedd").config.width == WIDTH
    assert set(fetched) == {("someone/sedd", True), ("someone/sedd", "pytorch_model.bin")}

    def refuse(hub_id, file):
        raise OSError("no net\nmore")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(
        CheckpointError, match=r"someone/sedd: no model.safetensors, and .*cannot be reached: no net$"
    ):
        weights_file("published:someone/sedd")


def changed(**others):
    made = tensors_of()
    for name, tensor in others.items():
        made |= {name.replace("__", "."): tensor}
    return {name: tensor for name, tensor in made.items() if tensor is not None}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (changed(blocks__1__norm2__weight=None), "tensor blocks.1.norm2.weight is missing"),
        (changed(vocab_embed__embedding=None), "tensor vocab_embed.embedding is missing"),
        (changed(blocks__0__norm1__bias=torch.zeros(WIDTH)), "tensor blocks.0.norm1.bias is not part of the"),
        (
            changed(output_layer__linear__bias=torch.zeros(V)),
            r"linear.bias has the shape \(257,\), .* imply \(258,\)",
        ),
        (changed(rotary_emb__inv_freq=torch.ones(4)), "rotary_emb.inv_freq is not that of 3 heads and theta 10000"),
    ],
)
def test_a_tensor_that_does_not_belong_is_named(tensors, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        load_published(write(tmp_path / "bad", "mdlm", tensors))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "does not describe a model"),
        ("[]", "does not describe a model"),
        ('{"model_type": "mdlm", "time_conditioning": false}', "has no n_heads"),
        ('{"graph": {"type": "uniform"}}', "is neither MDLM's .* nor that of SEDD absorb"),
    ],
)
def test_a_config_that_will_not_do_is_one_line(text, message, tmp_path):
    spec = write(tmp_path / "bad", "mdlm")
    (tmp_path / "bad" / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_system(f"it={spec}")
    assert "\n" not in str(caught.value)


def test_missing_files_and_wrong_settings_are_one_line(specs, tmp_path, monkeypatch):
    spec = write(tmp_path / "bare", "sedd")
    (tmp_path / "bare" / "pytorch_model.bin").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is not a checkpoint, or is damaged or cut short"):
        load_published(spec)
    (tmp_path / "bare" / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"holds neither model.safetensors nor pytorch_model.bin"):
        load_published(spec)
    (tmp_path / "bare" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config.json is missing"):
        load_published(spec)
    with pytest.raises(CheckpointError, match="no model folder nowhere; give a folder, or a hub id"):
        open_system("it=published:nowhere")
    with pytest.raises(ConfigError, match="steps=0 must be a whole number"):
        open_system(f"it={specs['sedd']},steps=0")
    with pytest.raises(ConfigError, match="width 24 does not divide into 5 heads"):
        load_published(write(tmp_path / "five", "mdlm", n_heads=5))
    with pytest.raises(ValueError, match="give levels"):
        load_published(specs["sedd"]).hidden(torch.tensor([[MASK]]))
    monkeypatch.setattr(published, "TOKENIZER", "default")
    other = load("default").num_text
    with pytest.raises(TokenizerError, match=f"the tokenizer has {other} tokens .* the model 257"):
        load_published(specs["mdlm"])


@BOTH
def test_the_commands_take_them_and_know_their_weights(family, specs, tmp_path, monkeypatch):
    texts, out, made = (tmp_path / name for name in ("texts.jsonl", "likelihood.json", "made.jsonl"))
    texts.write_text("".join(json.dumps({"text": f"{n} walked on and on, " * 9}) + "\n" for n in range(3)))
    shared = ["--ruler", "bytes", "--device", "cpu", "--out", str(out), "--system", f"it={specs[family]}"]
    words = ["eval", "likelihood", str(texts), "--prefix", "4", "--length", "12"]
    assert main([*words, *shared]) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["weights_sha256"] == hash_file(weights_file(specs[family]))
    words = ["eval", "continuation", str(texts), "--cut", "--prefix", "4", "--total", "20", "--seeds", "1"]
    monkeypatch.setattr("reviser.evaluation.systems.STEPS", 3)
    assert main([*words, *shared, "--generations", str(made)]) == 0
    assert {each.num_tokens <= 16 for each in read_generations(made)} == {True}
