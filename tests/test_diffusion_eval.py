"""MDLM and SEDD among the systems: they write, have bounds and cost what a diffusion model costs."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reviser.cli import main
from reviser.config import ModelConfig
from reviser.data.examples import Gap
from reviser.decoding.sampling import Sampling
from reviser.diffusion.bound import bound_nats
from reviser.diffusion.denoiser import FAMILIES
from reviser.diffusion.denoiser_folder import load_denoiser, load_model, load_tokenizer, save_denoiser
from reviser.errors import ConfigError
from reviser.evaluation import evaluators
from reviser.evaluation.generations import Generation, Prompt, read_generations
from reviser.evaluation.mdlm_evaluator import find_spans
from reviser.evaluation.metrics.evalppl import score
from reviser.evaluation.metrics.flops import diffusion_flops
from reviser.evaluation.metrics.likelihood import log_likelihood
from reviser.evaluation.systems import STEPS, Budget, DiffusionSystem, open_system
from reviser.files import hash_file
from reviser.model.attention import Layout
from reviser.model.checkpoint import save_pretrained
from reviser.model.quantize import matrices
from reviser.model.transformer import Transformer
from reviser.tokenizer import load

BYTES = load("bytes")
CONFIG = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=300)
PROMPTS = [Prompt(f"p:{i}", "One day " * (i + 1), " and then some.", " The end." * (i % 2)) for i in range(5)]
BOTH = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of random weights for each family, a Reviser's too."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("folders")
    for family, kind in FAMILIES.items():
        save_denoiser(kind(CONFIG), root / family, BYTES)
    save_pretrained(Transformer(CONFIG), root / "reviser", BYTES)
    return root


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    prose = " ".join(f"Word{number} walked on," for number in range(20))
    file.write_text("".join(json.dumps({"text": f"{number} {prose}"}) + "\n" for number in range(4)))
    return file


def run(capsys, *words):
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@BOTH
def test_a_system_fills_prompts_and_each_by_its_own_seed(family, folders):
    system = open_system(f"it={folders / family},steps=6")
    made = list(system.generate(PROMPTS, 3))
    assert [each.prompt_id for each in made] == [prompt.id for prompt in PROMPTS]
    assert made[3] == next(iter(system.generate(PROMPTS[3:4], 3)))
    assert made != list(system.generate(PROMPTS, 4))
    for each in made:
        assert each.num_tokens <= len(BYTES.encode(each.reference))
        assert each.is_stopped == (each.num_tokens < len(BYTES.encode(each.reference)))
        assert 1 <= each.num_actions <= 6
        assert each.record is None


@BOTH
def test_the_three_verbs_say_what_the_parts_say(family, folders):
    system = open_system(f"it={folders / family}", Sampling(), Budget(40))
    assert isinstance(system, DiffusionSystem)
    assert system.steps == STEPS == 128
    assert system.flops(100, prompt=20) == diffusion_flops(CONFIG, 100, steps=128, prompt=20)
    found = system.log_likelihood([*PROMPTS, "plain text"], samples=3, seed=5)
    gaps = [Gap(*map(BYTES.encode, (p.reference, p.prefix, p.suffix))) for p in PROMPTS]
    nats = bound_nats(system.model, [*gaps, Gap(BYTES.encode("plain text"))], 16, samples=3, seed=5)
    assert found.log_p == pytest.approx((-nats).tolist(), rel=1e-5)
    assert (found.is_exact, found.samples, found.num_tokens[-1]) == (False, 3, 10)


@BOTH
def test_more_samples_have_the_same_mean_and_spread_less(family, folders):
    model = load_denoiser(folders / family)
    few, many = (
        np.array([log_likelihood(model, BYTES, None, PROMPTS[:1], samples, seed).log_p for seed in range(24)])
        for samples in (1, 8)
    )
    assert many.std() < few.std()
    assert many.mean() == pytest.approx(few.mean(), abs=4 * few.std() / 24**0.5)


def test_likelihood_compares_families_in_one_table(folders, texts, tmp_path, capsys):
    steps = {"mdlm": ",steps=9"}
    names = [f"{family}={folders / family}{steps.get(family, '')}" for family in ("mdlm", "reviser", "sedd")]
    systems = [word for name in names for word in ("--system", name)]
    words = ("eval", "likelihood", texts, *systems, "--order", "left-to-right", "--prefix", 20)
    code, out, _ = run(capsys, *words, "--length", 40, "--samples", 2, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [(row["system"], row["order"], row["is_exact"]) for row in rows] == [
        ("mdlm", "mdlm", False), ("reviser", "left-to-right", True), ("sedd", "sedd", False)
    ]  # fmt: skip
    assert len({(row["num_tokens"], row["num_bytes"], row["n"]) for row in rows}) == 1
    assert all(4 < row["nats_per_token"] < 8 for row in rows)
    assert run(capsys, *words)[0] == 0


def test_continuations_and_gaps_are_written_by_diffusion_models_too(folders, texts, tmp_path, capsys):
    systems = [word for family in FAMILIES for word in ("--system", f"{family}={folders / family},steps=4")]
    shared = ("--ruler", "bytes", "--seeds", "1", *systems, "--json")
    for suite, words in (("continuation", ("--prefix", 9, "--total", 30, "--cut")), ("infill", ("--context", 12))):
        made = tmp_path / f"{suite}.jsonl"
        code, out, _ = run(capsys, "eval", suite, texts, "--generations", made, *words, *shared)
        assert code == 0
        assert {row["system"] for row in json.loads(out)["rows"]} == set(FAMILIES)
        assert all((each.suffix != "") == (suite == "infill") for each in read_generations(made))


def test_a_bench_times_a_denoisers_steps(capsys):
    small = ("model.num_layers=1", "model.width=32", "model.num_heads=2", "model.ff_width=32", "data.row=384",
             "train.rows=2", "optimizer.name=adamw", "data.workers=1")  # fmt: skip
    changes = [word for change in small for word in ("--set", change)]
    words = ("bench", "train", "mdlm_small", "--vocabulary", 300, "--steps", 1, "--warmup", 1, "--no-plain")
    code, out, _ = run(capsys, *words, *changes, "--device", "cpu", "--json")
    assert code == 0
    assert 0.2 < json.loads(out)["rows"][0]["ours"]["label_share"] < 0.7


def test_an_mdlm_scores_texts_as_a_masked_evaluator(folders):
    evaluator = evaluators.load(f"mdlm:{folders / 'mdlm'}")
    text = Generation("it", "p", 0, "Über ", "älter, é", " ist", "", False, 0, 0)
    found, model = score(evaluator, [text], chunk=1)[0], load_denoiser(folders / "mdlm")
    ids = BYTES.encode("Über älter, é ist")
    first, last = (len(part.encode()) for part in ("Über ", "Über älter, é"))
    nats = 0.0
    for place in range(first, last):
        canvas = torch.tensor([ids])
        canvas[0, place] = CONFIG.alphabet.none
        layout = Layout.of(torch.zeros(1, len(ids)))
        nats -= model.log_scores(canvas, torch.ones(1), layout, torch.tensor([place]))[0, ids[place]].item()
    assert (found.num_tokens, found.num_bytes) == (last - first, last - first)
    assert found.nats == pytest.approx(nats, rel=1e-5)
    assert evaluator.about["kind"] == "masked"
    assert evaluator.about["sha256"] == hash_file(folders / "mdlm" / "model.safetensors")


@given(st.text(max_size=20))
def test_spans_of_tokens_are_the_characters_they_are_part_of(text):
    ids = BYTES.encode(text)
    spans = find_spans(BYTES.pieces(ids))
    assert all(low < high for low, high in spans)
    wanted = [place for place, letter in enumerate(text) for _ in letter.encode()]
    assert [low for low, _ in spans] == wanted


def test_folders_of_all_families_open_alike(folders):
    for family, kind in {**FAMILIES, "reviser": Transformer}.items():
        assert type(load_model(folders / family)) is kind
        assert load_tokenizer(folders / family).sha256 == BYTES.sha256


@BOTH
def test_a_room_is_no_larger_than_what_the_canvas_has_left(family, folders):
    wide, exact = (open_system(f"it={folders / family},steps=2", budget=Budget(size)) for size in (999, 292))
    assert len(PROMPTS[0].prefix) == 300 - 292
    assert list(wide.generate(PROMPTS[:1], 0)) == list(exact.generate(PROMPTS[:1], 0))


@BOTH
def test_packed_folders_hold_the_rounded_weights(family, folders, tmp_path, capsys):
    code, out, _ = run(capsys, "pack", folders / family, tmp_path / "int8", "--weights", "int8", "--json")
    assert code == 0
    assert json.loads(out)["weights"] == "int8"
    assert json.loads(out)["num_bytes"] < 0.4 * json.loads(out)["num_bytes_before"]
    whole, packed = (
        dict(load_denoiser(folder).named_parameters()) for folder in (folders / family, tmp_path / "int8")
    )
    chosen = matrices(load_denoiser(folders / family))
    for name, tensor in whole.items():
        step = tensor.abs().amax(dim=1, keepdim=True) / 127 if name in chosen else torch.zeros(1)
        assert ((packed[name] - tensor).abs() <= 0.51 * step).all()


@BOTH
def test_a_folder_shown_tells_what_a_denoiser_sees(family, folders, capsys):
    code, out, _ = run(capsys, "info", folders / family)
    assert code == 0
    assert "the whole canvas, some of it masked" in out
    assert "insert, stop" not in out


def test_errors_are_one_line(folders):
    with pytest.raises(ConfigError, match="steps=0 must be a whole number of at least 1"):
        open_system(f"it={folders / 'mdlm'},steps=0")
    with pytest.raises(ConfigError, match="only a diffusion model has steps"):
        open_system(f"it={folders / 'reviser'},steps=8")
    long = Prompt("p:9", "x" * 300, " and then some.")
    with pytest.raises(ConfigError, match="has 300 tokens, but the model was trained with canvases of 300 at most"):
        next(iter(open_system(f"it={folders / 'mdlm'}").generate([long], 0)))
    with pytest.raises(ConfigError, match="a model that edits is measured by an order"):
        log_likelihood(load_model(folders / "reviser"), BYTES, None, PROMPTS)
    with pytest.raises(ConfigError, match="is sedd, whose scores are not probabilities; give an MDLM"):
        evaluators.load(f"mdlm:{folders / 'sedd'}")
    with pytest.raises(ConfigError, match="is a masked model, but a causal one is needed"):
        evaluators.load(f"mdlm:{folders / 'mdlm'}", "causal")
