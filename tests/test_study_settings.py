"""Study files: what they may say, and messages that name the key, the value and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_studies import toml
from thoroughness import examples

import pixelcert as pc
from pixelcert import statistics
from pixelcert.commands.study import write_template
from pixelcert.models.loading import PAPER_MODELS
from pixelcert.plan import ALPHA, LEVELS, SIGMA, TAU
from pixelcert.plan import N as SAMPLES
from pixelcert.study.settings import GridSettings, ImageSettings, ModelSettings, Settings, load_settings
from pixelcert.study.templates import NAMES, template

MODELS = 'models = ["resnet18"]\n'


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "study.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file)


def refusal(tmp_path: Path, text: str) -> str:
    """What is said of a study file, below the line that names it."""
    with pytest.raises(pc.ArgumentError) as refused:
        read(tmp_path, text)
    first, _, rest = str(refused.value).partition("\n")
    assert first == f"{tmp_path / 'study.toml'} cannot be run as it is:"
    return rest


# ── Mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────

MISTAKES = [
    # keys
    ("sigmas = 0.15", "sigmas", "", "use one of models, methods, layers, sigma"),
    ("[images]\nfolders = 'here'", "images.folders", "", "use one of folder, labels, synsets, count"),
    ("[grids]\nm = 2", "grids.m", "", "use one of count, side, cell"),
    ("[model.resnet18]\nwidth = 3", "model.resnet18.width", "", "use one of model, weights, size"),
    ("[extra]\nfolder = 'here'", "extra", "", "use one of models, methods"),
    # types
    ("methods = 3", "methods", "3", "string"),
    ("layers = ['input', 7]", "layers", "7", "string"),
    ("sigma = 'loud'", "sigma", "'loud'", "number"),
    ("sigma = [0.15, 'loud']", "sigma", "'loud'", "number"),
    ("n = 'many'", "n", "'many'", "integer"),
    ("n = 10.5", "n", "10.5", "integer"),
    ("tau = ['high']", "tau", "'high'", "number"),
    ("levels = 'all'", "levels", "'all'", "number"),
    ("alpha = 'small'", "alpha", "'small'", "number"),
    ("precision = 'float64'", "precision", "'float64'", "'auto', 'float32', 'tf32' or 'bfloat16'"),
    ("precision = 32", "precision", "32", "'auto', 'float32', 'tf32' or 'bfloat16'"),
    ("compile = 'yes'", "compile", "'yes'", "'auto'"),
    ("compile = 1", "compile", "1", "'auto'"),
    ("seed = 1.5", "seed", "1.5", "integer"),
    ("[images]\ncount = 'some'", "images.count", "'some'", '"all"'),
    ("[images]\ncount = 2.5", "images.count", "2.5", '"all"'),
    ("[images]\nfolder = 3", "images.folder", "3", "string"),
    ("[images]\nfilter = [18]", "images.filter", "18", "string"),
    ("[grids]\ncell = 'large'", "grids.cell", "'large'", "integer"),
    ("[model.resnet18]\nsize = 'large'", "model.resnet18.size", "'large'", "integer"),
    # values
    ("sigma = 0", "sigma", "0.0", "such as 0.15"),
    ("sigma = [0.15, -0.1]", "sigma", "-0.1", "such as 0.15"),
    ("sigma = nan", "sigma", "nan", "such as 0.15"),
    ("sigma = inf", "sigma", "inf", "such as 0.15"),
    ("n = 0", "n", "0", "such as 100"),
    ("n = [100, -5]", "n", "-5", "such as 100"),
    ("seed = 9223372036854775808", "seed", "9223372036854775808", "such as 0"),
    ("tau = 0.4", "tau", "0.4", "[0.5, 1)"),
    ("tau = [0.75, 1.0]", "tau", "1.0", "[0.5, 1)"),
    ("tau = nan", "tau", "nan", "[0.5, 1)"),
    ("alpha = 0", "alpha", "0", "such as 0.001"),
    ("alpha = 1", "alpha", "1", "such as 0.001"),
    ("levels = [50, 100]", "levels", "100", "between 0 and 100"),
    ("levels = 0", "levels", "0", "between 0 and 100"),
    ("presets = 'published'", "presets", "'published'", "'default' or 'reference'"),
    ("sign = 'both'", "sign", "'both'", "'signed', 'absolute' or 'positive'"),
    ("correction = 'fdr'", "correction", "'fdr'", "'holm', 'bonferroni'"),
    ("[images]\ncount = -1", "images.count", "-1", '"all"'),
    ("[images]\nconfidence = 1.5", "images.confidence", "1.5", "less than or equal to 1"),
    ("[images]\nconfidence = nan", "images.confidence", "nan", "1"),
    ("[images]\nseed = -1", "images.seed", "-1", "greater than or equal to 0"),
    ("[grids]\ncount = -1", "grids.count", "-1", "greater than or equal to 0"),
    ("[grids]\nside = 1", "grids.side", "1", "greater than or equal to 2"),
    ("[grids]\ncell = 4", "grids.cell", "4", "greater than or equal to 8"),
    ("[model.resnet18]\nsize = 4", "model.resnet18.size", "4", "greater than or equal to 8"),
    # values named twice, or none
    ("methods = ['grad', 'lrp', 'grad']", "methods", "grad", "once"),
    ("layers = ['input', 'input']", "layers", "input", "once"),
    ("sigma = [0.15, 0.25, 0.15]", "sigma", "0.15", "once"),
    ("n = [100, 100]", "n", "100", "once"),
    ("tau = [0.6, 0.60]", "tau", "0.6", "once"),
    ("levels = [50, 10, 50]", "levels", "50", "once"),
    ("presets = ['default', 'default']", "presets", "default", "once"),
    ("methods = []", "methods", "", "at least one"),
    ("sigma = []", "sigma", "", "at least one"),
    ("tau = []", "tau", "", "at least one"),
    # names
    ("methods = 'gradd'", "methods", "'gradd'", "choose from grad, gb"),
    ("methods = 'few'\n[method.few]\nmethod = 'rice'", "methods", "'few'", '[method.few] method = "rise"'),
    ("methods = 'few'\n[method.few]\nmasks = 3", "methods", "'few'", '[method.few] method = "rise"'),
    ("methods = 'rise'\n[method.rise]\nmask = 3", "method.rise.mask", "", "masks, cells, probability"),
    ("methods = 'grad'\n[method.grad]\nsteps = 3", "method.grad.steps", "", "none"),
    ("methods = 'few'\n[method.few]\nmethod = 'rise'\nsteps = 3", "method.few.steps", "", "masks, cells"),
    ("methods = 'rise'\n[method.grad]", "method.grad", "'grad'", "add it, or remove the table"),
    ("[model.vgg11]\nsize = 224", "model.vgg11", "'vgg11'", "add it, or remove the table"),
    # what does not go together
    ("tau = [0.6, 0.7]\ndeletion = 0.75", "deletion", "0.75", "tau = [0.6, 0.7]"),
    ("deletion = 0.2", "deletion", "0.2", "[0.5, 1)"),
    ("[images]\ncount = 0", "images.count and grids.count", "0", "raise one"),
]


@pytest.mark.parametrize(("text", "key", "value", "remedy"), MISTAKES, ids=[text for text, *_ in MISTAKES])
def test_mistake_is_answered_with_the_key_the_value_and_a_remedy(tmp_path, text, key, value, remedy):
    message = refusal(tmp_path, MODELS + text)
    assert message.strip().startswith(key)
    assert value in message
    assert remedy in message


NO_NUMBERS = [
    "n = true",
    "sigma = true",
    "seed = true",
    "alpha = '0.001'",
    "n = '100'",
    "tau = '0.75'",
    "levels = '50'",
]
NO_NUMBERS += [
    "[images]\ncount = true",
    "[images]\ncount = '3'",
    "[grids]\ncount = true",
    "[images]\nconfidence = true",
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_only_looks_like_a_number_is_refused(tmp_path, text):
    key = text.rpartition("\n")[2].partition(" ")[0]
    assert key in refusal(tmp_path, MODELS + text)


@pytest.mark.parametrize(
    ("text", "key"),
    [("images = 3", "images"), ("method = 3", "method"), ("methods = 'rise'\nmethod = {rise = 3}", "method.rise")],
)
def test_value_where_a_table_belongs_is_answered_in_the_words_of_the_file(tmp_path, text, key):
    message = refusal(tmp_path, MODELS + text)
    assert f"{key} = 3" in message
    assert "table" in message
    for word in ("dictionary", "instance", "tuple"):
        assert word not in message


def test_parameter_of_another_type_is_refused_before_anything_is_loaded(tmp_path):
    message = refusal(tmp_path, MODELS + "methods = 'rise'\n[method.rise]\nmasks = 'many'")
    assert "method.rise.masks" in message
    assert "'many'" in message


def test_reference_preset_with_too_few_samples_is_answered_by_a_key_of_the_file(tmp_path):
    """It spends ten samples on guessing labels; `guess` itself is no key."""
    assert refusal(tmp_path, MODELS + "presets = 'reference'\nn = 5").strip().startswith("n")


@pytest.mark.parametrize("key", ["models", "methods", "layers"])
def test_name_without_letters_is_refused(tmp_path, key):
    """It would stand for a default without saying so."""
    assert key in refusal(tmp_path, toml({"models": "resnet18"} | {key: ""}))


def test_missing_models_are_asked_for_by_example(tmp_path):
    assert 'models = ["resnet18"]' in refusal(tmp_path, "sigma = 0.15")


def test_all_mistakes_are_told_at_once(tmp_path):
    message = refusal(tmp_path, "modells = 'resnet18'\nn = 'many'\n[images]\nconfidence = 2")
    starts = [line.split()[0] for line in message.splitlines()]
    assert sorted(starts) == ["images.confidence", "modells", "models", "n"]


def test_file_that_is_not_there_is_answered_with_how_to_get_one(tmp_path):
    with pytest.raises(pc.ArgumentError, match=r"nowhere\.toml does not exist: `pixelcert study init .*nowhere\.toml`"):
        load_settings(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ['models = ["resnet18"', "models = resnet18", MODELS + MODELS, "models: resnet18"])
def test_what_is_no_toml_is_refused_with_the_place(tmp_path, text):
    with pytest.raises(pc.ArgumentError, match=r"study\.toml is not valid TOML \(.*\(at .*\)\): correct that line"):
        read(tmp_path, text)


def test_what_is_no_text_is_refused(tmp_path):
    file = tmp_path / "study.toml"
    file.write_bytes('models = ["modèle"]'.encode("latin-1"))
    with pytest.raises(pc.ArgumentError, match=r"study\.toml cannot be read as text .*: give a TOML file"):
        load_settings(file)
    with pytest.raises(pc.ArgumentError, match=r"cannot be read as text .*: give a TOML file"):
        load_settings(tmp_path)


# ── What may be said ──────────────────────────────────────────────────────────────────────────────────────────────


def test_models_alone_make_a_study_with_the_papers_defaults(tmp_path):
    found = read(tmp_path, "models = 'resnet18'")
    assert found.models == ("resnet18",)
    assert found.methods == tuple(pc.METHODS)
    assert found.layers == ("input", "final")
    assert (found.sigma, found.n, found.levels, found.tau) == ((SIGMA,), (SAMPLES,), LEVELS, (TAU,))
    assert (found.alpha, found.presets, found.seed) == (ALPHA, ("default",), None)
    assert found.images == ImageSettings(folder="embedded", count="all", filter=(), confidence=0.99)
    assert found.grids.count == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("models", "vgg11"), ("methods", "lrp"), ("layers", "final"), ("presets", "reference")),
        *(("sigma", 0.25), ("n", 200), ("levels", 12.5), ("tau", 0.6), ("deletion", 0.75)),
    ],
)
def test_one_value_is_a_list_of_one(tmp_path, key, value):
    one, listed = (
        read(tmp_path, toml({"models": "vgg11", "tau": [0.75]} | {key: given})) for given in (value, [value])
    )
    assert one == listed
    assert getattr(one, key) == (value,)


def test_one_filter_is_a_list_of_one(tmp_path):
    assert read(tmp_path, MODELS + "[images]\nfilter = 'vgg11'").images.filter == ("vgg11",)


def test_lists_keep_their_order(tmp_path):
    found = read(tmp_path, MODELS + "sigma = [0.33, 0.15]\nlevels = [5, 50]\ntau = [0.9, 0.6]\nn = [200, 100]")
    assert (found.sigma, found.levels, found.tau, found.n) == ((0.33, 0.15), (5, 50), (0.9, 0.6), (200, 100))


def test_plans_are_every_preset_with_every_sigma_and_every_n(tmp_path):
    text = "presets = ['default', 'reference']\nsigma = [0.15, 0.25]\nn = [100, 200]\nseed = 7\nlevels = [50, 5]"
    plans = read(tmp_path, MODELS + text).plans()
    assert list(plans) == [
        (preset, sigma, n) for preset in ("default", "reference") for sigma in (0.15, 0.25) for n in (100, 200)
    ]
    for (preset, sigma, n), plan in plans.items():
        assert plan == pc.Plan.make(preset=preset, sigma=sigma, n=n, seed=7, levels=(50, 5))


@pytest.mark.parametrize("precision", ["auto", "float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("compiled", ["auto", True, False])
def test_precision_and_compiling_may_be_said(tmp_path, precision, compiled):
    found = read(tmp_path, toml({"models": "vgg11", "precision": precision, "compile": compiled}))
    assert (found.precision, found.compile) == (precision, compiled)


def test_precision_and_compiling_are_chosen_by_default(tmp_path):
    found = read(tmp_path, MODELS)
    assert (found.precision, found.compile) == ("auto", "auto")


def test_sign_overrides_that_of_every_preset(tmp_path):
    plans = read(tmp_path, MODELS + "presets = ['default', 'reference']\nsign = 'positive'").plans()
    assert {plan.sign for plan in plans.values()} == {"positive"}


def test_variant_of_a_method_names_its_base_and_parameters(tmp_path):
    text = "methods = ['rise', 'few']\n[method.few]\nmethod = 'rise'\nmasks = 3\n[method.rise]\nmasks = 9"
    found = read(tmp_path, MODELS + text)
    assert found.method_named("few") == ("rise", {"masks": 3})
    assert found.method_named("rise") == ("rise", {"masks": 9})


def test_label_of_a_model_stands_for_what_its_table_says(tmp_path):
    text = "models = ['mine', 'vgg11']\n[model.mine]\nmodel = 'package.module:make'\nweights = 'w.pth'\nsize = 64"
    found = read(tmp_path, text)
    assert found.model_named("mine") == ModelSettings(model="package.module:make", weights="w.pth", size=64)
    assert found.model_named("vgg11") == ModelSettings(model="vgg11", weights="DEFAULT", size=None)


def test_model_that_only_filters_may_have_a_table(tmp_path):
    found = read(tmp_path, MODELS + "[images]\nfilter = ['vgg11']\n[model.vgg11]\nweights = 'vgg11.pth'")
    assert found.model_named("vgg11").weights == "vgg11.pth"


@pytest.mark.parametrize(
    ("text", "taus"),
    [
        ("tau = [0.6, 0.75]", (0.75,)),
        ("tau = [0.6, 0.7]", (0.6,)),
        ("tau = [0.6, 0.75]\ndeletion = []", ()),
        ("tau = [0.6, 0.75]\ndeletion = [0.75, 0.6]", (0.75, 0.6)),
    ],
)
def test_deletion_is_measured_at_the_tau_asked_for_else_the_papers_else_the_first(tmp_path, text, taus):
    assert read(tmp_path, MODELS + text).deletion_taus == taus


@given(
    n=st.integers(11, 400),
    tau=st.floats(0.55, 0.95),
    alpha=st.floats(1e-4, 0.1),
    side=st.integers(8, 300),
    preset=st.sampled_from(["default", "reference"]),
    correction=st.sampled_from([None, "holm", "bonferroni", "joint"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_fewest_samples_are_the_fewest_that_can_certify_a_pixel(n, tau, alpha, side, preset, correction):
    study = Settings(models="resnet18", alpha=alpha, correction=correction, tau=tau, presets=preset, n=n)
    (plan,) = study.plans().values()
    test: Any = study.criterion(tau).correction_for(plan)

    def possible(samples: int) -> bool:
        tested = samples - plan.guess if test == "reference" else samples
        return tested > 0 and statistics.votes_needed(tested, tau, alpha, side**2, test) is not None

    fewest = statistics.fewest_samples(plan, study.criterion(tau), side**2)
    if fewest is None:
        assert possible(n)
    else:
        assert n < fewest
        assert possible(fewest)
        assert not possible(fewest - 1)


# ── Templates ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=NAMES)
def text(request) -> str:
    return template(request.param).decode()


def test_template_is_a_valid_study(tmp_path, text):
    read(tmp_path, text)


def test_template_is_still_valid_with_everything_in_it_that_is_commented_out(tmp_path, text):
    """All but the model's and the method's options, which are in words where there is no example."""
    whole = re.sub(r"^# (?=\[model\.\w+\]$|\w+ = )", "", text, flags=re.MULTILINE)
    assert whole != text
    found = read(tmp_path, whole)
    assert (found.sign, found.correction) == ("absolute", "holm")
    assert found.images.labels == "labels.csv"
    assert found.images.synsets is not None


@pytest.mark.parametrize(("part", "table"), list(enumerate([Settings, ImageSettings, GridSettings, ModelSettings])))
def test_template_shows_every_key(text, part, table):
    parts = re.split(r"^\[images\]|^\[grids\]|Options of a name", text, flags=re.MULTILINE)
    for name in table.model_fields:
        if table is Settings and name in ("images", "grids", "model", "method"):
            assert re.search(rf"^(# )?\[{name}[.\]]", text, re.MULTILINE), name
        else:
            assert re.search(rf"\b{name} += ", parts[part]), name


def test_template_for_the_paper_has_its_numbers(tmp_path):
    found = read(tmp_path, template("paper").decode())
    assert found.models == PAPER_MODELS
    assert len(found.models) == 5
    assert found.methods == tuple(pc.METHODS)
    assert len(found.methods) == 12
    assert found.layers == ("input", "final")
    assert sorted(found.sigma) == [0.15, 0.25, 0.33]
    assert found.n == (100,)
    assert sorted(found.levels, reverse=True) == [50, 30, 25, 10, 5]
    assert sorted(found.tau) == [0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    assert found.alpha == 0.001
    assert (found.images.count, found.grids.count, found.grids.side) == (100, 100, 2)
    assert set(found.images.filter) <= set(found.models)
    assert found.images.filter
    assert found.images.confidence == 0.99
    assert "default" in found.presets
    assert found.deletion_taus == (0.75,)
    assert found.method_named("rise") == ("rise", {"masks": 6000})


def test_template_for_a_first_look_needs_nothing_but_the_demo_extra(tmp_path):
    found = read(tmp_path, template("demo").decode())
    assert found.models == ("efficientnet_lite0",)
    assert found.methods == tuple(pc.METHODS)
    assert found.images.folder == "embedded"
    assert found.grids.count > 0


def test_unknown_template_is_refused_with_the_known_ones():
    with pytest.raises(pc.ArgumentError, match="'papers' is not known: choose one of demo, paper"):
        template("papers")


@pytest.mark.parametrize("name", NAMES)
def test_init_writes_the_template_and_never_overwrites(tmp_path, name):
    file = tmp_path / "below" / "study.toml"
    write_template(file, name)
    assert file.read_bytes() == template(name)
    file.write_text("mine")
    with pytest.raises(pc.ArgumentError, match=r"study\.toml exists already: name another file"):
        write_template(file, name)
    assert file.read_text() == "mine"


# ── Parameters of a layer ─────────────────────────────────────────────────────────────────────────────────────────


def test_parameters_of_a_layer_override_those_of_the_method_there_alone(tmp_path):
    text = MODELS + "methods = 'occlusion'\n[method.occlusion]\nstride = 4\n[method.occlusion.input]\nwindow = 32"
    (tmp_path / "study.toml").write_text(text)
    settings = load_settings(tmp_path / "study.toml")
    assert settings.method_named("occlusion", "input") == ("occlusion", {"stride": 4, "window": 32})
    assert settings.method_named("occlusion", "final") == ("occlusion", {"stride": 4})


def test_mistakes_in_the_parameters_of_a_layer_are_told(tmp_path):
    text = MODELS + "methods = 'occlusion'\n[method.occlusion."
    assert "'middle' is not in layers" in refusal(tmp_path, text + "middle]\nwindow = 3")
    assert "method.occlusion.windows" in refusal(tmp_path, text + "input]\nwindows = 3")
