"""`pixelcert certify`, `models` and `methods`: what they write, print and refuse, and what Ctrl-C leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import N_TINY, TINY, Run, assert_refused, files_in, interrupted, stopping_after, within
from PIL import Image
from small_networks import small_model

import pixelcert as pc
from pixelcert.models.loading import photographs
from pixelcert.sampling import loop

# ── The embedded model ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs")
@pytest.mark.usefixtures("embedded")
def test_certify_of_the_embedded_model_writes_and_prints_everything(pixelcert, tmp_path):
    """With the defaults, but for n, and nothing replaced."""
    with Image.open(photographs()[1]) as photo:
        photo.resize((225, 150)).save(tmp_path / "cat.jpg")
    run = pixelcert("certify", "cat.jpg", "-n", 62)
    assert run.code == 0, run.err
    assert files_in(tmp_path / "out") == ["cat-grad_cam-final.png", "cat-grad_cam-final.safetensors"]
    votes = pc.Votes.load(tmp_path / "out" / "cat-grad_cam-final.safetensors")
    assert (votes.plan, votes.size, votes.complete) == (pc.Plan(n=62, seed=0), (224, 224), True)
    assert votes.provenance.image_name == "cat.jpg"
    assert "cat" in votes.provenance.target_name
    assert votes.photo is not None
    with Image.open(tmp_path / "out" / "cat-grad_cam-final.png") as picture:
        picture.load()
        assert min(picture.size) > 500

    certificate = votes.certify()
    assert sum(certificate.percent_certified(level) for level in certificate.levels) > 0
    rows = [line for line in run.out.splitlines() if "│" in line]
    for level, row in zip((50, 25, 10, 5), rows, strict=True):
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells[1:] == [f"{level} %", *(f"{share:.1f} %" for share in certificate.shares(level))]
    assert "cat.jpg" in rows[0]
    assert certificate.votes.provenance.target_name in rows[0]
    assert "R = 0.1008" in run.out  # 0.1012 less the lattice's slack
    assert "224 × 224 × 3 values in [0, 1]" in run.out
    assert "99.9 %" in run.out
    assert f"in {certificate.prediction.votes} of 62 noisy copies" in run.out
    assert "out/cat-grad_cam-final.safetensors" in run.out
    assert "out/cat-grad_cam-final.png" in run.out


# ── certify ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_all_there_is_on_stdout(certify, tmp_path):
    run = certify("--json", "-K", 50, "-K", 12.5, "--picture")
    assert run.code == 0
    (result,) = json.loads(run.out)
    votes = pc.Votes.load(tmp_path / result["votes"])
    certificate = votes.certify()
    assert Path(result["picture"]).exists()
    assert result["radius"] == certificate.radius
    assert result["space"] == "16 × 16 × 3 values in [0, 1]"
    assert (result["tau"], result["alpha"], result["correction"]) == (0.75, 0.001, "holm")
    assert result["levels"].keys() == {"50", "12.5"}
    shares = certificate.shares(12.5)
    assert result["levels"]["12.5"] == {
        "ones": shares.ones,
        "zeros": shares.zeros,
        "abstained": shares.abstained,
        "certified": certificate.percent_certified(12.5),
        "claim": certificate.claims[12.5]._asdict(),
    }
    assert result["prediction"]["votes"] == certificate.prediction.votes
    assert result["plan"]["levels"] == [50, 12.5]
    assert result["provenance"]["model"] == "tiny"
    assert result["provenance"]["batches"] == [[0, 11]]
    assert result["provenance"]["surgery"] == votes.provenance.surgery
    assert result["provenance"]["surgery"]


def test_votes_of_the_command_are_those_of_the_library(certify, tmp_path):
    assert certify().code == 0
    saved = pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors")
    explainer = pc.method("grad", pc.load_model("command_line:make"))
    votes = pc.sample(explainer, pc.load_image("cat.png", 16), 0, n=N_TINY, batch_size=11, tau=None)
    np.testing.assert_array_equal(votes.ones, saved.ones)
    np.testing.assert_array_equal(votes.zeros, saved.zeros)
    assert votes.provenance.differences(saved.provenance) == []


@pytest.mark.usefixtures("cat")
def test_default_target_is_the_predicted_class(pixelcert):
    model = pc.load_model("command_line:make")
    run = pixelcert("certify", "cat.png", "--model", "command_line:make", "--method", "grad", "-n", N_TINY, "--json")
    assert json.loads(run.out)[0]["provenance"]["target"] == model.predict(pc.load_image("cat.png", 16))[0]


def test_several_images_become_several_rows_and_files(certify, tmp_path):
    Image.open(tmp_path / "cat.png").rotate(90).save(tmp_path / "dog.png")
    run = certify("--json", images=("cat.png", "dog.png"))
    assert [Path(result["votes"]).name for result in json.loads(run.out)] == [
        "cat-grad-input.safetensors",
        "dog-grad-input.safetensors",
    ]
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.safetensors"]


@pytest.mark.skipif(find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs")
def test_without_an_image_the_embedded_photographs_are_certified(certify, tmp_path):
    assert certify(images=()).code == 0
    assert files_in(tmp_path / "out") == ["chelsea-grad-input.safetensors", "coffee-grad-input.safetensors"]


def test_options_reach_the_votes(certify, tmp_path):
    run = certify(
        *("--sigma", 0.25, "-n", 60, "--seed", 7, "--sign", "absolute", "-K", 30, "--target", 1),
        *("--method", "grad_cam", "--layer", "features", "--param", "relu=false", "-o", tmp_path / "deep" / "er"),
    )
    assert run.code == 0
    votes = pc.Votes.load(tmp_path / "deep" / "er" / "cat-grad_cam-features.safetensors")
    assert votes.plan == pc.Plan(sigma=0.25, n=60, levels=(30,), seed=7, sign="absolute")
    assert votes.provenance.params == {"relu": False}
    assert votes.provenance.target == 1


def test_target_may_be_given_by_name(certify, tmp_path):
    assert certify("--target", "[red]x[/red]").code == 0
    assert pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors").provenance.target == 0


def test_tau_alpha_and_correction_reach_the_certificate(certify):
    run = certify("--tau", 0.6, "--alpha", 0.01, "--correction", "joint", "--json")
    (result,) = json.loads(run.out)
    assert (result["tau"], result["alpha"], result["correction"]) == (0.6, 0.01, "joint")


def test_reference_preset_uses_the_published_test(certify):
    run = certify("--preset", "reference", "-n", N_TINY + 10, "--json")
    (result,) = json.loads(run.out)
    assert result["correction"] == "reference"
    assert result["plan"]["guess"] == 10
    assert result["prediction"] is None


def test_other_corrections_of_reference_votes_test_all_samples(certify):
    """They guess nothing, so n need not make up for the samples spent on guessing."""
    run = certify("--preset", "reference", "--correction", "holm", "-n", N_TINY, "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)[0]["correction"] == "holm"


def test_no_correction_is_labelled_as_study_only(certify):
    run = certify("--correction", "none")
    assert "study only" in run.out
    assert "With confidence" not in run.out


@pytest.mark.parametrize("alpha", [1e-7, 1e-9])
def test_no_alpha_is_printed_as_certainty(certify, alpha):
    run = certify("--alpha", alpha, "-n", 120)
    assert run.code == 0
    confidence = float(run.out.partition("With confidence ")[2].split()[0])
    assert 99.9 < confidence <= 100 * (1 - alpha) * (1 + 1e-12)  # but for the rounding of this very line
    assert confidence < 100


def test_constant_maps_abstain_everywhere_and_a_note_says_why(certify):
    run = certify("--model", "command_line:make_constant", "--json")
    assert run.code == 0
    (result,) = json.loads(run.out)
    assert {level["abstained"] for level in result["levels"].values()} == {100.0}
    assert "note: every map was constant" in run.err


@pytest.mark.parametrize(
    ("mode", "colour", "said"),
    [("L", 128, "grey"), ("RGBA", (9, 9, 9, 128), "transparent"), ("P", 3, "palette"), ("LA", (9, 9), "transparent")],
)
def test_images_that_are_not_rgb_are_converted_and_that_is_said(certify, tmp_path, mode, colour, said):
    Image.new(mode, (16, 16), colour).save(tmp_path / "odd.png")
    run = certify("--json", images=("odd.png",))
    assert run.code == 0
    json.loads(run.out)
    (note,) = [line for line in run.err.splitlines() if line.startswith("note: odd.png")]
    assert said in note
    assert "converted to RGB" in note


# ── Names are printed as they are ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["[red]x", "[bold]x[reset]", ":cat:", "x\\", "[link=y]", "100%", "{0}"])
@pytest.mark.usefixtures("quick_pictures")
def test_names_of_images_are_no_markup(certify, cat, name):
    cat.rename(cat.with_name(f"{name}.png"))
    run = certify("--picture", images=(f"{name}.png",))
    assert run.code == 0
    assert f" {name}.png, [red]x[/red] " in run.out  # the table
    assert f"out/{name}-grad-input.safetensors" in run.out
    assert f"out/{name}-grad-input.png" in run.out
    assert f"{name}.png" in run.err  # the progress bar


def test_names_of_images_are_no_markup_in_pictures(certify, cat):
    name = ":[bold]{0}100%$x$\\"
    cat.rename(cat.with_name(f"{name}.png"))
    assert certify("--picture", images=(f"{name}.png",)).code == 0
    with Image.open(cat.parent / "out" / f"{name}-grad-input.png") as picture:
        picture.verify()


@pytest.mark.parametrize("target", [0, 1])
def test_names_of_classes_are_no_markup(certify, target):
    run = certify("--model", f"command_line:make_always_{target}", "--target", target)
    name = ("[red]x[/red]", ":dog: [bold]")[target]
    assert f"cat.png, {name} " in run.out
    assert f"the model answers {name} in 44 of 44" in run.out


@pytest.mark.parametrize("name", ["[red]x[/red].png", "[/red].png", ":cat:.png"])
def test_names_in_errors_are_no_markup(certify, name):
    assert_refused(certify(images=(name,)), f"error: {name} ")


@pytest.mark.usefixtures("quick_pictures")
def test_paths_are_never_broken_over_lines(certify, tmp_path, monkeypatch):
    """They are there to be copied, also from a log of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / ("long" * 20) / ("longer" * 10)
    run = certify("-o", out, "--picture")
    assert str(out / "cat-grad-input.safetensors") in run.out
    assert str(out / "cat-grad-input.png") in run.out
    assert str(out / "nowhere.png") in certify(images=(out / "nowhere.png",)).err


# ── Refusals before sampling ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--sigma 0", ["sigma=0", "0.15"]),
        ("--sigma -0.1", ["sigma=-0.1"]),
        ("--sigma nan", ["sigma=nan"]),
        ("--sigma inf", ["sigma=inf"]),
        ("--tau 0.4", ["tau=0.4", "[0.5, 1)"]),
        ("--tau 1", ["tau=1", "[0.5, 1)"]),
        ("--tau nan", ["tau=nan"]),
        ("--alpha 0", ["alpha=0", "(0, 1)"]),
        ("--alpha 1", ["alpha=1", "(0, 1)"]),
        ("--alpha nan", ["alpha=nan"]),
        ("-K 0", ["K", "0", "between 0 and 100"]),
        ("-K 100", ["K", "100", "between 0 and 100"]),
        ("-K nan", ["K", "nan", "between 0 and 100"]),
        ("-K 10 -K 50 -K 10.0", ["K", "10", "twice", "once"]),
        ("-n 0", ["n=0", "100"]),
        ("-n 43", ["n=43", "at least 44", "tau"]),
        ("--seed 18446744073709551616", ["seed=18446744073709551616", "whole number from", "use one such as 0"]),
        ("--target 3", ["--target 3", "0 to 2"]),
        ("--target -1", ["-1", "index"]),
        ("--target unicorn", ["--target", "unicorn", "index"]),
        ("--method magic", ["method", "magic", "grad_cam"]),
        ("--model resnot", ["model", "resnot", "pixelcert models"]),
        ("--model no_such_module:make", ["no_such_module", "PYTHONPATH"]),
        ("--model command_line:fake", ["command_line:fake", "fake"]),
        ("--model command_line:Net", ["command_line:Net", "Classifier"]),
        ("--model resnet18 --weights nowhere.pth", ["--weights nowhere.pth", "check the path"]),
        ("--weights nowhere.pth", ["nowhere.pth"]),  # a function brings its own weights
        ("--method cam --layer features", ["cam", "layer='features'", "'final'", "'input'"]),
        ("--method grad_cam --layer attic", ["layer='attic'", "features"]),
        ("--param colour=red", ["colour"]),
        ("--param relu", ["--param", "relu", "NAME=VALUE"]),
        ("--method grad_cam --param colour=red", ["colour", "relu"]),
        ("--method grad_cam --param relu=False", ["relu", "False", "false"]),  # not the truth of a string
        ("--method grad_cam --param relu=maybe", ["relu", "maybe"]),
        ("--sign upside", ["sign", "upside", "signed, absolute, positive"]),
        ("--preset mine", ["preset", "mine", "default, reference"]),
        ("--correction hochberg", ["correction", "hochberg", "holm"]),
        ("--correction reference", ["reference", "preset"]),
        ("--preset reference -n 53", ["n=53", "at least 54"]),
        ("--batch-size 0", ["batch_size=0", "whole number from 1"]),
        ("--device abacus", ["device=abacus", "cpu"]),
        ("--device meta", ["device=meta", "cpu"]),
        ("--device hpu", ["device=hpu", "cpu"]),
        ("--device privateuseone", ["device=privateuseone", "cpu"]),
        ("--model squeezenet1_0 --weights cat.png", ["--weights cat.png cannot be read", "state dict"]),
    ],
)
def test_bad_option_is_refused_before_sampling(certify, tmp_path, options, words):
    assert_refused(certify(*options.split()), *words)
    assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize(
    "options",
    [
        *("--tau 1", "--alpha 0", "-K 0", "-n 0", "--sigma 0", "--correction best", "--precision half"),
        *("--batch-size 0", "--method magic", "--param colour=red", "--device abacus", "--weights nowhere.pth"),
        *("-o cat.png", "nowhere.png", "words.txt", "cat.jpg"),
    ],
)
def test_what_needs_no_model_is_refused_before_one_is_loaded(certify, tmp_path, monkeypatch, options):
    (tmp_path / "words.txt").write_text("no picture")
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.jpg")  # which would share a file with cat.png
    monkeypatch.setattr("pixelcert.commands.certify.load_model", lambda *_: pytest.fail("a model was loaded"))
    assert_refused(certify(*options.split()))


def test_what_is_said_of_weights_is_in_the_words_of_the_options(certify, monkeypatch):
    def load_model(*_: Any) -> None:
        raise pc.ModelError("not downloaded: give weights=PATH of a file, or weights=none for random ones.")

    monkeypatch.setattr("pixelcert.commands.certify.load_model", load_model)
    assert_refused(certify(), "give --weights PATH of a file, or --weights none for random ones.")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize("letters", [215, 225, 244])
def test_an_image_whose_files_would_have_too_long_names_is_refused(certify, monkeypatch, letters):
    """Also where only the votes of an interrupted run, or a file half written, would."""
    monkeypatch.setattr("pixelcert.commands.certify.load_model", lambda *_: pytest.fail("a model was loaded"))
    name = f"{'a' * letters}.png"
    os.rename("cat.png", name)
    assert_refused(certify(images=(name,)), "name too long", "choose a shorter name")


@pytest.mark.usefixtures("no_sampling")
def test_name_that_two_classes_share_is_refused(certify):
    assert_refused(certify("--target", ":dog: [bold]"), "--target", ":dog: [bold]", "1", "2", "index")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused(certify):
    assert_refused(certify("--device", "cuda"), "cuda", "cpu")


@pytest.mark.usefixtures("no_sampling")
def test_hopeless_tau_is_refused_soon(certify):
    with within(60):
        assert_refused(certify("--tau", 0.999999), "tau=0.999999", "raise n to at least")


@pytest.mark.usefixtures("no_sampling")
def test_missing_image_is_refused(certify):
    assert_refused(certify(images=("cat.png", "nowhere.png")), "nowhere.png", "does not exist")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize("content", [b"", b"no picture", "half a picture"], ids=["empty", "text", "cut"])
def test_broken_image_is_refused(certify, tmp_path, content):
    whole = (tmp_path / "cat.png").read_bytes()
    (tmp_path / "broken.png").write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    assert_refused(certify(images=("cat.png", "broken.png")), "broken.png", ":")


@pytest.mark.usefixtures("no_sampling")
def test_folder_in_place_of_an_image_is_refused(certify, tmp_path):
    (tmp_path / "photos").mkdir()
    assert_refused(certify(images=("photos",)), "photos")


@pytest.mark.usefixtures("no_sampling")
def test_images_that_would_share_a_file_are_refused(certify, tmp_path):
    (tmp_path / "a").mkdir()
    os.rename(tmp_path / "cat.png", tmp_path / "a" / "cat.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.jpg")
    assert_refused(certify(images=("a/cat.png", "cat.jpg")), "cat", "rename")


@pytest.mark.usefixtures("no_sampling")
def test_out_that_is_a_file_is_refused(certify, tmp_path):
    (tmp_path / "taken").write_text("")
    assert_refused(certify("-o", "taken"), "taken")


def test_what_cannot_be_certified_in_the_end_is_not_sampled(certify, monkeypatch):
    """At this α, n = 44 is the fewest for the pixels and leaves nothing for the prediction beside them."""
    noisy, batches = loop.noisy, []
    monkeypatch.setattr(loop, "noisy", lambda *given, **named: (batches.append(given), noisy(*given, **named))[1])
    run = certify("--alpha", repr(256 * (0.75**44 + 0.25**44) * (1 + 1e-6)))
    assert run.code == 0 or not batches, run.err


# ── --precision and --compile ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--precision float64", ["precision='float64'", "auto, float32, tf32, bfloat16"]),
        ("--precision tf32 --device cpu", ["precision='tf32'", "cpu", "use float32"]),
        ("--method gb --compile", ["compile=True", "gb"]),
    ],
)
@pytest.mark.usefixtures("no_sampling")
def test_a_tuning_that_cannot_be_had_is_refused_before_sampling(certify, tmp_path, options, words):
    assert_refused(certify(*options.split()), *words)
    assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_is_recorded_and_its_votes_are_the_librarys(certify, tmp_path, precision):
    assert certify("--precision", precision, "--device", "cpu").code == 0
    saved = pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors")
    assert (saved.provenance.precision, saved.provenance.compiled) == (precision, False)
    explainer = pc.method("grad", pc.load_model("command_line:make", device="cpu"))
    settings = {"n": N_TINY, "batch_size": 11, "tau": None}
    votes = pc.sample(explainer, pc.load_image("cat.png", 16), 0, precision=precision, **settings)
    np.testing.assert_array_equal(votes.ones, saved.ones)
    assert votes.provenance.differences(saved.provenance) == []


@pytest.mark.parametrize(("options", "asked"), [((), "auto"), (("--compile",), True), (("--no-compile",), False)])
def test_compiling_is_asked_for_left_out_or_left_to_the_library(certify, monkeypatch, options, asked):
    given = []

    def sample_into(*arguments: Any) -> None:
        given.append(arguments[-1].compile)
        raise pc.ArgumentError("seen enough")

    monkeypatch.setattr("pixelcert.commands.certify.sample_into", sample_into)
    assert_refused(certify(*options), "seen enough")
    assert given == [asked]


def test_resume_goes_on_in_the_precision_of_the_votes(certify, tmp_path):
    file = tmp_path / "out" / "cat-grad-input.safetensors"
    assert certify("--precision", "bfloat16", "--device", "cpu").code == 0
    whole = file.read_bytes()
    file.unlink()
    with stopping_after(2, KeyboardInterrupt()):
        assert certify("--precision", "bfloat16", "--device", "cpu").code == 130
    assert_refused(certify("--resume", "--device", "cpu"), "precision was 'bfloat16', now 'float32'", "same")
    assert certify("--resume", "--precision", "bfloat16", "--device", "cpu").code == 0
    assert file.read_bytes() == whole


# ── --resume ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def votes_file(certify, tmp_path) -> Path:
    """The votes of an uninterrupted run, in out/."""
    assert certify().code == 0
    return tmp_path / "out" / "cat-grad-input.safetensors"


@pytest.fixture
def partial_file(certify, tmp_path) -> Path:
    """The votes of a run that Ctrl-C ended after two of four batches, in stopped/."""
    with stopping_after(2, KeyboardInterrupt()):
        assert certify("-o", "stopped").code == 130
    return tmp_path / "stopped" / "cat-grad-input.partial.safetensors"


def test_complete_votes_are_reused_without_sampling(certify, votes_file, request):
    before = votes_file.read_bytes()
    request.getfixturevalue("no_sampling")
    run = certify("--resume", "--tau", 0.7, "--json")
    assert run.code == 0
    assert json.loads(run.out)[0]["tau"] == 0.7
    assert votes_file.read_bytes() == before


def test_reuse_does_not_rewrite_where_votes_came_from(certify, votes_file):
    """They were sampled in batches of 11, whatever is asked for now."""
    before = votes_file.read_bytes()
    assert certify("--resume", "--batch-size", 5).code == 0
    assert votes_file.read_bytes() == before


def test_without_resume_votes_are_sampled_again(certify, votes_file):
    with stopping_after(0, KeyboardInterrupt()):
        assert certify("--seed", 0).code == 130


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--sigma 0.25", "sigma"),
        ("-n 60", "n was 44, now 60"),
        ("--seed 1", "seed"),
        ("-K 50", "levels"),
        ("--sign absolute", "sign"),
        ("--preset reference -n 60", "rule"),
        ("--target 1", "target"),
        ("--model command_line:make_constant", "weights"),
    ],
)
def test_resume_with_other_settings_is_refused(certify, votes_file, request, options, word):
    before = votes_file.read_bytes()
    request.getfixturevalue("no_sampling")
    assert_refused(certify("--resume", *options.split()), word, "same")
    assert votes_file.read_bytes() == before
    assert files_in(votes_file.parent) == [votes_file.name]


@pytest.mark.usefixtures("votes_file")
def test_resume_with_another_image_of_the_same_name_is_refused(certify, tmp_path, request):
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.png")
    request.getfixturevalue("no_sampling")
    assert_refused(certify("--resume"), "image")


def test_resume_with_other_parameters_is_refused(certify, request):
    assert certify("--method", "grad_cam").code == 0
    request.getfixturevalue("no_sampling")
    assert_refused(certify("--method", "grad_cam", "--param", "relu=false", "--resume"), "params", "relu")


@pytest.mark.usefixtures("no_sampling")
def test_resume_from_a_damaged_file_is_refused(certify, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cat-grad-input.safetensors").write_bytes(b"damaged")
    assert_refused(certify("--resume"), "cat-grad-input.safetensors", "damaged")


def test_resume_with_nothing_to_resume_samples(certify, votes_file, tmp_path):
    assert certify("--resume", "-o", "fresh").code == 0
    assert (tmp_path / "fresh" / votes_file.name).read_bytes() == votes_file.read_bytes()


# ── Ctrl-C ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_saves_what_is_counted_and_says_how_to_go_on(certify, tmp_path):
    with stopping_after(2, KeyboardInterrupt()):
        run = certify()
    assert run.code == 130
    assert run.out == ""
    assert "22 of 44 samples" in run.err
    assert "--resume" in run.err
    assert files_in(tmp_path / "out") == ["cat-grad-input.partial.safetensors"]
    votes = pc.Votes.load(tmp_path / "out" / "cat-grad-input.partial.safetensors")
    assert (votes.counted, votes.plan.n, votes.complete) == (22, 44, False)


def test_partial_votes_are_not_certified(pixelcert, partial_file):
    assert_refused(pixelcert("show", partial_file), "22 of the 44", "--resume")
    assert files_in(partial_file.parent) == [partial_file.name]


def test_resumed_votes_are_those_of_an_uninterrupted_run(certify, votes_file, partial_file):
    with stopping_after(2, AssertionError("more batches than were missing")):
        run = certify("-o", "stopped", "--resume")
    assert run.code == 0
    assert files_in(partial_file.parent) == [votes_file.name]
    assert (partial_file.parent / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_resume_takes_the_batch_size_from_the_votes(certify, pixelcert, votes_file, partial_file):
    assert pixelcert("certify", "cat.png", *TINY, "-o", "stopped", "--resume").code == 0
    assert (partial_file.parent / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_interrupted_again_and_again_ends_in_the_same_votes(certify, votes_file, tmp_path):
    for _ in range(3):
        with stopping_after(1, KeyboardInterrupt()):
            assert certify("-o", "stopped", "--resume").code == 130
    assert certify("-o", "stopped", "--resume").code == 0
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_ctrl_c_before_the_first_batch_can_be_resumed(certify, votes_file, tmp_path):
    with stopping_after(0, KeyboardInterrupt()):
        assert certify("-o", "stopped").code == 130
    assert certify("-o", "stopped", "--resume").code == 0
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_starting_anew_removes_what_an_earlier_run_left(certify, votes_file, partial_file):
    assert certify("-o", "stopped", "--overwrite").code == 0
    assert files_in(partial_file.parent) == [votes_file.name]


def test_ctrl_c_at_the_second_image_keeps_the_first(certify, tmp_path):
    Image.open(tmp_path / "cat.png").rotate(90).save(tmp_path / "dog.png")
    images = ("cat.png", "dog.png")
    with stopping_after(5, KeyboardInterrupt()):
        assert certify(images=images).code == 130
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.partial.safetensors"]
    with stopping_after(3, AssertionError("more batches than were missing")):
        assert certify("--resume", images=images).code == 0
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.safetensors"]


def test_votes_of_earlier_settings_do_not_bar_the_way_to_resume(certify, votes_file):
    """Ctrl-C promised that the same command with --resume continues, whatever lay in the folder before."""
    with stopping_after(2, KeyboardInterrupt()):
        assert certify("--seed", 1, "--overwrite").code == 130
    assert pc.Votes.load(votes_file).plan.seed == 0, "complete votes are not given up for partial ones"
    run = certify("--seed", 1, "--overwrite", "--resume")
    assert run.code == 0, run.err
    assert pc.Votes.load(votes_file).plan.seed == 1


def test_votes_of_other_settings_are_not_replaced_unless_told_to(certify, votes_file, request):
    before = votes_file.read_bytes()
    assert_refused(certify("--seed", 1), "seed was 0, now 1", "--overwrite")
    assert votes_file.read_bytes() == before
    assert certify("--seed", 1, "--overwrite").code == 0
    assert pc.Votes.load(votes_file).plan.seed == 1


def test_the_same_command_again_gives_the_same_file(certify, votes_file):
    before = votes_file.read_bytes()
    assert certify("--seed", 0).code == 0
    assert votes_file.read_bytes() == before


def test_votes_of_the_same_settings_are_neither_replaced_nor_drawn_again_unasked(certify, votes_file, monkeypatch):
    """Or the better of two could be kept."""
    monkeypatch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 7)
    before = votes_file.read_bytes()
    assert_refused(certify(), votes_file.name, "these settings", "--resume", "--overwrite")
    assert certify("--resume").code == 0
    assert votes_file.read_bytes() == before
    assert certify("--overwrite").code == 0
    assert pc.Votes.load(votes_file).plan.seed == 7


def test_an_unstated_seed_is_drawn_when_all_else_is_fixed_and_resumed(certify, tmp_path, monkeypatch):
    monkeypatch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 2**bits - 1)
    with stopping_after(2, KeyboardInterrupt()):
        assert certify("-o", "here").code == 130
    monkeypatch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 5)
    assert certify("-o", "here", "--resume").code == 0
    (file,) = (tmp_path / "here").glob("*.safetensors")
    assert pc.Votes.load(file).plan.seed == 2**63 - 1
    assert certify("-o", "straight", "--seed", 2**63 - 1).code == 0
    assert file.read_bytes() == (tmp_path / "straight" / file.name).read_bytes()


def test_show_draws_where_it_is_told(pixelcert, votes_file, tmp_path):
    assert pixelcert("show", votes_file, "-o", tmp_path / "other").code == 0
    assert files_in(tmp_path / "other") == [f"{votes_file.stem}.png"]


def test_explainer_that_fails_midway_loses_nothing(certify, votes_file, tmp_path):
    with stopping_after(3, RuntimeError("the plug was pulled")):
        run = certify("-o", "stopped")
    assert_refused(run, "the plug was pulled", "33 of 44", "--resume")
    assert certify("-o", "stopped", "--resume").code == 0
    assert files_in(tmp_path / "stopped") == [votes_file.name]
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_ctrl_c_while_the_model_loads_is_answered(certify, tmp_path, monkeypatch):
    monkeypatch.setattr("pixelcert.commands.certify.load_model", interrupted)
    assert certify() == Run(130, "", "interrupted.\n")
    assert files_in(tmp_path / "out") == []


TICKING = """
import time
from pathlib import Path

import command_line


def tick(*_):  # a file that grows with every run; the ninth, after trials, waits to be interrupted
    with open("ticks", "a") as file:
        file.write(".")
        file.flush()
        while file.tell() == 9:
            time.sleep(0.1)


def make():
    model = command_line.make()
    model.net.register_forward_pre_hook(tick)
    return model
"""


def test_a_real_ctrl_c_ends_a_real_process(certify, tmp_path):
    (tmp_path / "ticking.py").write_text(TICKING)
    ticks, ticking = tmp_path / "ticks", ("--model", "ticking:make", "--batch-size", "2", "-o", "here")
    process = subprocess.Popen(
        [sys.executable, "-m", "pixelcert", "certify", "cat.png", *map(str, TINY), *ticking],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # shells ignore it for jobs
    )
    while not (ticks.exists() and ticks.stat().st_size >= 9) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert "Traceback" not in err
    assert files_in(tmp_path / "here") == ["cat-grad-input.partial.safetensors"]
    partial = pc.Votes.load(tmp_path / "here" / "cat-grad-input.partial.safetensors")
    assert 0 < partial.counted < N_TINY
    assert partial.plan.seed != 0, "drawn by the operating system"

    assert certify("-o", "here", "--resume", "--batch-size", 2).code == 0
    assert certify("-o", "straight", "--batch-size", 2, "--seed", partial.plan.seed).code == 0
    (votes,) = files_in(tmp_path / "straight")
    assert files_in(tmp_path / "here") == [votes]
    assert (tmp_path / "here" / votes).read_bytes() == (tmp_path / "straight" / votes).read_bytes()


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def memory_for(images: int, after: int) -> Iterator[None]:
    """Lets batches of more images than that run out of memory, after so many batches."""
    explain, calls = loop.explain, []

    def hungry(explainer: Any, batch: torch.Tensor, targets: Any) -> Any:
        calls.append(len(batch))
        if len(calls) > after and len(batch) > images:
            raise torch.OutOfMemoryError("out of memory")
        return explain(explainer, batch, targets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "explain", hungry)
        yield


def test_batches_that_memory_halved_are_told_once(certify, tmp_path):
    Image.open(tmp_path / "cat.png").rotate(90).save(tmp_path / "dog.png")
    with memory_for(images=5, after=2):
        run = certify("--json", images=("cat.png", "dog.png"))
    assert run.code == 0
    assert [line for line in run.err.splitlines() if "memory" in line] == [
        "note: cat.png: memory ran out: from sample 22 on, 5 images at once."
    ]
    assert [result["provenance"]["batches"] for result in json.loads(run.out)] == [[[0, 11], [22, 5]], [[0, 5]]]


def test_batches_of_another_size_in_a_resumed_run_are_no_lack_of_memory(certify, partial_file):
    run = certify("-o", "stopped", "--resume", "--batch-size", 4)
    assert run.code == 0
    assert pc.Votes.load(partial_file.parent / "cat-grad-input.safetensors").provenance.batches == [[0, 11], [22, 4]]
    assert "memory" not in run.err


# ── models, methods ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_models_lists_what_can_be_loaded(pixelcert):
    run = pixelcert("models")
    assert run.code == 0
    for name in ("efficientnet_lite0", "resnet18", "vit_b_16", "convnext_tiny", "package.module:function"):
        assert name in run.out
    assert "pixelcert[demo]" in run.out


def test_models_as_json(pixelcert):
    names = json.loads(pixelcert("models", "--json").out)
    assert names == pc.model_names()
    assert names[0] == "efficientnet_lite0"


def test_methods_lists_names_layers_and_parameters(pixelcert):
    run = pixelcert("methods")
    assert run.code == 0
    for name, kind in pc.METHODS.items():
        _, _, entry = run.out.partition(f"\n{name}  {kind.title}")
        assert entry, name
        entry = " ".join(entry.partition("cost per noisy image: ")[0].split())
        assert all(f"{parameter}={value}" in entry for parameter, value in kind.parameters().items())
        assert kind.layers[0] in entry


def test_methods_says_what_the_zeros_of_occlusion_stand_for(pixelcert):
    entry = pixelcert("methods").out.partition("\nocclusion ")[2]
    model = small_model("resnet")
    for layer, place in {"input": "at the input", "final": "at other layers"}.items():
        occlusion = pc.method("occlusion", model, layer)
        for side, value in {"window": occlusion._window(), "stride": occlusion._stride()}.items():
            assert f"{value} {place}" in entry.partition(f"{side}=0 (")[2].partition(")")[0]


def test_methods_as_json(pixelcert):
    methods = json.loads(pixelcert("methods", "--json").out)
    assert methods.keys() == pc.METHODS.keys()
    assert methods["grad_cam"]["parameters"] == {"relu": True}
    assert methods["grad_cam"]["layers"][0] == "final"
