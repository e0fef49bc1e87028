"""The rules behind the claims: they confirm a world as the paper tells it, and deny one where all methods are alike."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import shutil
from dataclasses import replace
from itertools import product

import pytest
from scipy.special import stdtrit

import pixelcert as pc
from pixelcert.basics.messages import ArgumentError
from pixelcert.study.tables import MEAN
from studies import tables
from studies.claims import CLAIMS, faithfulness, localisation, networks, pictures, robustness
from studies.claims.__main__ import gather, report
from studies.claims.judgement import Found, Part, verdict
from studies.claims.wording import ahead, balance, falls, listed, path, ranked
from studies.evidence import Evidence, Mean, Where, find

LEVELS, SIGMAS = (50, 30, 25, 10, 5), (0.15, 0.25, 0.33)
TAUS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
LAYERS = ("input", "final")

# One number per method, in the order of pc.METHODS:
#          grad   gb     intgrad ixg    lrp    cam    gradcam ++     ablation layer  rise   occlusion
CERTIFIED = {
    "input": (3.0, 4.0, 1.7, 1.6, 45.0, 1.1, 1.2, 1.3, 1.4, 1.5, 55.0, 1.45),
    "final": (100.0, 100.0, 70.0, 70.1, 70.2, 78.0, 78.1, 85.0, 78.2, 84.0, 90.0, 80.0),
}
ONES = {
    "input": (2.0, 2.1, 0.1, 0.2, 20.0, 0.3, 0.4, 0.5, 0.6, 0.7, 25.0, 1.0),
    "final": (40.0, 40.0, 30.0, 30.0, 30.0, 35.0, 35.0, 38.0, 36.0, 37.0, 40.0, 36.0),
}
PLACE = {  # Certified GridPG at K = 50
    "input": (0.60, 0.30, 0.55, 0.57, 0.53, 0.10, 0.11, 0.12, 0.13, 0.14, 0.62, 0.61),
    "final": (0.25, 0.25, 0.70, 0.70, 0.70, 0.85, 0.90, 0.80, 0.81, 0.82, 0.84, 0.83),
}
FIRST_DROP = {
    "input": (0.1, 0.1, 0.1, 0.1, 0.6, 0.1, 0.0, 0.1, 0.1, 0.1, 0.5, 0.2),
    "final": (0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7),
}
AREA = {
    "input": (0.8, 0.8, 0.8, 0.8, 0.30, 0.8, 0.8, 0.8, 0.8, 0.8, 0.31, 0.7),
    "final": (0.29, 0.29, 0.2, 0.2, 0.05, 0.2, 0.2, 0.2, 0.2, 0.2, 0.06, 0.2),
}


class Paper:
    """A world in which the paper's claims hold, as far as they agree with each other."""

    def at(self, table, method, layer):
        return table[layer][list(pc.METHODS).index(method)]

    def constant(self, method, layer):
        return layer == "final" and method in ("grad", "gb")

    def certified(self, method, layer, sigma, tau, level):
        value = self.at(CERTIFIED, method, layer)
        if tau > 0.8:
            return 0.0
        if self.constant(method, layer):
            return value
        return value * (1.2 - sigma) * (1.75 - tau) * (1 if level >= 30 else 1.01)

    def ones(self, method, layer, sigma, tau, level):
        return self.at(ONES, method, layer) * level / 50 * (1.15 - sigma)

    def zeros(self, method, layer, sigma, tau, level):
        return 100 - level / 100 if self.constant(method, layer) else 50.0 - level / 5

    def place(self, method, layer, sigma, tau, level):
        value = self.at(PLACE, method, layer) - 0.1 * (0.75 - tau)
        if self.constant(method, layer):
            return 0.25
        strong = ("rise", "occlusion", "lrp") + (("cam", "grad_cam") if layer == "final" else ())
        if level <= 10 and method in strong:
            value = 0.99 if method in ("rise", "occlusion") else 0.95
        elif level <= 10:
            value += 0.01
        if level == 30 and layer == "input" and method in ("grad", "gb", "intgrad"):
            value = 0.9
        if sigma == 0.33:
            kept = {"rise": 0.9, "occlusion": 0.9} | ({"cam": 0.5, "grad_cam": 0.5} if layer == "final" else {})
            value = kept.get(method, 0.2)
        return value

    def spread(self, method, layer, sigma):
        return (0.01 if method == "rise" else 0.05) * (1 + sigma)

    def grid_pg(self, method, layer):
        place = self.place(method, layer, 0.15, 0.75, 50)
        if layer == "final":
            return place - (0.1 if method == "rise" else 0.0)
        return 0.52 if method == "lrp" else 0.3 if method in ("rise", "occlusion") else min(place, 0.5) - 0.05


class Alike(Paper):
    """A world in which nothing depends on anything."""

    def certified(self, *_):
        return 30.0

    def ones(self, *_):
        return 10.0

    def zeros(self, *_):
        return 20.0

    def place(self, *_):
        return 0.4

    def spread(self, *_):
        return 0.1

    def grid_pg(self, *_):
        return 0.4


def means_of(world, drop=FIRST_DROP, area=AREA) -> dict[Where, Mean]:
    means: dict[Where, Mean] = {}
    shares = {"certified": world.certified, "certified_1": world.ones, "certified_0": world.zeros}
    for method, layer, sigma in product(pc.METHODS, LAYERS, SIGMAS):
        where = (method, layer, sigma)
        means[("grid_pg", "grid", *where, None, None)] = Mean(world.grid_pg(method, layer), None, 10, 10)
        for tau, level in product(TAUS, LEVELS):
            here = (*where, tau, level)
            for (metric, share), scene in product(shares.items(), ("image", "grid")):
                means[(metric, scene, *here)] = Mean(share(*here), None, 10, 10)
            left = 0.99 - world.at(drop, method, layer)
            means[("deletion_confidence", "image", *here)] = Mean(left, None, 10, 10)
            place = Mean(world.place(*here), world.spread(*where), 10, 10, 0.1, 0.9)
            means[("certified_grid_pg", "grid", *here)] = place
        for tau in TAUS:
            means[("confidence", "image", *where, tau, None)] = Mean(0.99, None, 10, 10)
            means[("deletion_area", "image", *where, tau, None)] = Mean(world.at(area, method, layer), None, 10, 10)
    return means


def found(world, **options) -> Found:
    one = Evidence(means_of(world, **options), "reference")
    return Found(one, one, {"resnet50": one})


@pytest.fixture(scope="module")
def as_told() -> Found:
    return found(Paper())


@pytest.fixture(scope="module")
def alike() -> Found:
    level = dict.fromkeys(LAYERS, (0.3,) * 12)
    return found(Alike(), drop=level, area=level)


UNTESTED = (networks.vision_transformer, networks.vgg)  # of networks that were not run
STEADY = (localisation.perturbation_methods_alike, pictures.maps_kept_as_radius_grows)  # they say that nothing differs
# LRP cannot be the first of backpropagation, or among the first two or three of all, and yet behind Grad, Input ×
# Gradient and Integrated Gradients; nor certify the most at the final layer, and yet less than activation methods.
CONTRADICTED = (
    localisation.localise_best,
    faithfulness.faithful_methods_localise_best,
    pictures.lrp_then_grad_on_grids,
    robustness.most_robust,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.parts.__name__)
def test_a_world_as_the_paper_tells_it_confirms_the_claim(claim, as_told):
    parts = list(claim.parts(as_told))
    expected = "not tested" if claim in UNTESTED else "partly" if claim in CONTRADICTED else "confirmed"
    assert verdict(parts) == expected, "\n".join(f"{part.says}: {part.finding}" for part in parts)


@pytest.mark.parametrize(
    "claim", [claim for claim in CLAIMS if claim not in (*UNTESTED, *STEADY)], ids=lambda c: c.parts.__name__
)
def test_a_world_without_any_difference_does_not_confirm_it(claim, alike):
    assert verdict(list(claim.parts(alike))) != "confirmed"


def test_the_claims_are_each_told_once_and_belong_to_a_section():
    assert len({claim.says for claim in CLAIMS}) == len(CLAIMS) == len({claim.parts for claim in CLAIMS})
    assert all(claim.where[0] in "5BCDEG" and claim.says.endswith(".") for claim in CLAIMS)


@pytest.mark.parametrize(
    ("cases", "most", "expected"),
    [
        ([True, True], False, "confirmed"),
        ([True, False], False, "partly"),
        ([True, False, False], False, "not"),
        ([True, True, False], True, "confirmed"),
        ([True, False], True, "partly"),
        ([False, False], True, "not"),
    ],
)
def test_verdict_of_one_part(cases, most, expected):
    assert verdict([Part("", dict(zip("abc", cases, strict=False)), most=most)]) == expected


def test_verdict_of_several_parts():
    yes, no = Part("", {"": True}), Part("", {"": False})
    assert [verdict(parts) for parts in ([yes, yes], [yes, no], [no, no], [])] == [
        "confirmed",
        "partly",
        "not",
        "not tested",
    ]


def test_finding_names_the_few_cases_that_are_wrong():
    assert Part("", {"": True}, "1 %").finding == "yes (1 %)"
    assert Part("", {"a": True, "b": False}).finding == "1 of 2, not b"
    assert Part("", dict.fromkeys("abcde", False) | {"f": True}).finding == "1 of 6"


def test_ahead_needs_more_than_a_tie():
    assert ahead({"rise": 2.0, "lrp": 1.0, "cam": 1.0}, "rise", "lrp") == {"RISE": True, "LRP": False}
    assert ahead({"rise": math.nan, "cam": math.nan}, "rise") == {"RISE": False}


def test_order_and_words():
    values = {"rise": 1.0, "lrp": math.nan, "cam": 2.0}
    assert ranked(values) == ["cam", "rise", "lrp"]
    assert listed(values, 1, 2) == "CAM 2.0, RISE 1.0"
    assert path([1, math.nan]) == "1.0 → undefined"
    assert falls([3, 2, 1])
    assert not falls([3, 3, 1])


def test_balance_is_the_harmonic_mean(as_told):
    share = as_told.main.certified("rise", "final", level=30) / 100
    place = as_told.main.localisation("rise", "final", level=30)
    assert balance(as_told.main, "rise", "final") == pytest.approx(2 / (1 / share + 1 / place))


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_means(file, means, model="resnet18", presets=("reference", "default")):
    """As `pixelcert study results` writes them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt") if file.suffix == ".gz" else file.open("w") as text:
        table = csv.DictWriter(text, MEAN)
        table.writeheader()
        for (metric, scene, method, layer, sigma, tau, level), mean in means.items():
            ends = {}
            if mean.spread is not None:
                half = float(stdtrit(mean.defined - 1, 0.975)) * mean.spread / math.sqrt(mean.defined)
                ends = {"mean_low": mean.value - half, "mean_high": mean.value + half}
            row = {"metric": metric, "scene": scene, "method": method, "layer": layer, "sigma": sigma, "tau": tau}
            row |= {"level": level, "model": model, "n": 100, "planned": 10, "count": mean.count, **ends}
            row |= {"defined": mean.defined, "mean": mean.value, "low": mean.low, "high": mean.high}
            table.writerows({**row, "preset": preset} for preset in presets)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Means of all studies, of a world as the paper tells it."""
    folder, means = tmp_path_factory.mktemp("means"), means_of(Paper())
    write_means(folder / "reproduction.csv.gz", means)
    write_means(folder / "reproduction-radii" / "results" / "means.csv", means)
    write_means(folder / "reproduction-signs.csv.gz", means, presets=("default",))
    write_means(folder / "reproduction-resnet50.csv.gz", means, "resnet50")
    masks = {
        (where[0], where[1], f"rise-{count}", *where[3:]): mean
        for where, mean in means.items()
        for count in (1000, 6000)
        if where[2] == "rise"
    }
    write_means(folder / "reproduction-masks.csv.gz", masks)
    return folder


def test_means_are_read_back_with_their_spread(folder):
    read = Evidence.read(find(folder, "reproduction"), "resnet18", "reference")
    expected = means_of(Paper())["certified_grid_pg", "grid", "lrp", "input", 0.25, 0.7, 10]
    mean = read.mean("certified_grid_pg", "lrp", "input", scene="grid", sigma=0.25, tau=0.7, level=10)
    assert mean.spread == pytest.approx(expected.spread)
    assert (mean.value, mean.count, mean.defined, mean.low, mean.high) == (expected.value, 10, 10, 0.1, 0.9)


def test_images_and_grids_are_not_mixed_up():
    where = ("rise", "input", 0.15, 0.75, 50)
    means = {("certified", scene, *where): Mean(value, None, 1, 1) for scene, value in (("image", 1.0), ("grid", 2.0))}
    read = Evidence(means, "default")
    assert read.certified("rise", "input") == 1
    assert read.certified("rise", "input", scene="grid") == 2


def test_grids_without_certified_pixels_count_as_zero_by_the_published_rules_alone():
    means = {("certified_grid_pg", "grid", "rise", "input", 0.15, 0.75, 50): Mean(0.8, None, 10, 5)}
    assert Evidence(means, "reference").localisation("rise", "input") == pytest.approx(0.4)
    assert Evidence(means, "default").localisation("rise", "input") == 0.8
    nowhere = {where: Mean(None, None, 10, 0) for where in means}
    assert Evidence(nowhere, "reference").localisation("rise", "input") == 0
    assert math.isnan(Evidence(nowhere, "default").localisation("rise", "input"))


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(
        ArgumentError, match=r"no means of reproduction: run `pixelcert study run studies/reproduction.toml`"
    ):
        find(tmp_path, "reproduction")
    with pytest.raises(ArgumentError, match=r"no means with model=vgg11 and preset=default"):
        Evidence.read(find(folder, "reproduction"), "vgg11", "default")
    with pytest.raises(ArgumentError, match=r"no certified of rise at input with .*level=1: add it"):
        Evidence.read(find(folder, "reproduction"), "resnet18", "default").certified("rise", "input", level=1)


def test_report_has_every_claim_with_verdicts_by_both_rules(folder):
    published, own = (gather(folder, preset) for preset in ("reference", "default"))
    assert list(published.others) == ["resnet50"]  # the other network was not run
    text = report(published, own)
    lines = text.splitlines()[2 : 2 + len(CLAIMS)]
    for claim, line in zip(CLAIMS, lines, strict=True):
        one, other = (verdict(list(claim.parts(found))) for found in (published, own))
        assert line.endswith(f"| {claim.says} | {claim.where} | {one} | {other} |")
    assert "RISE first: yes (RISE 57.8, LRP 47.2," in text


def without(means, *cells):
    """The means but for those of some methods, layers and kinds of scene."""
    return {where: mean for where, mean in means.items() if (where[2], where[3], where[1]) not in cells}


def test_a_network_is_judged_by_what_was_measured_of_it(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "means")
    part = without(means_of(Paper()), ("rise", "input", "grid"))
    write_means(tmp_path / "means" / "reproduction-lite0.csv.gz", part, "efficientnet_lite0", ("reference",))
    text = report(*(gather(tmp_path / "means", preset) for preset in ("reference", "default")))
    parts = dict(part.split("\n", 1) for part in text.split("\n\n") if "On every" in part and "|" not in part)
    robust = next(part for says, part in parts.items() if "most robust at the input" in says)
    assert re.search(r"resnet50: first in %certified: 2 of 2 \([^)]*\)\.$", robust, re.MULTILINE)
    assert re.search(
        r"lite0: first in %certified: 2 of 2 \([^)]*\)\. By our rules: not tested\.$", robust, re.MULTILINE
    )
    balanced = next(part for says, part in parts.items() if "best trade-off" in says)
    assert "resnet18" in balanced
    assert "resnet50" in balanced
    assert "lite0" not in balanced  # that takes grids
    placed = next(part for says, part in parts.items() if "generally localises" in says)
    assert re.search(r"lite0, K = 50: better at the final layer: 9 of 9", placed)  # all but RISE, Grad and GB


def test_scenes_that_were_not_measured_are_named(folder):
    means = without(means_of(Paper()), ("rise", "input", "grid"))
    of = Evidence({where: replace(mean, planned=10) for where, mean in means.items()}, "default")
    assert of.missing == {("rise", "input", sigma, "grid"): (0, 10) for sigma in SIGMAS}
    some = {where: replace(mean, planned=12 if where[2:4] == ("cam", "final") else 10) for where, mean in means.items()}
    assert Evidence(some, "default").missing["cam", "final", 0.25, "image"] == (10, 12)
    assert Evidence.read(find(folder, "reproduction"), "resnet18", "default").missing == {}


def test_tables_leave_open_what_was_not_measured(folder, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder, tmp_path / "means")
    part = without(means_of(Paper()), ("rise", "input", "grid"), ("cam", "final", "image"), ("cam", "final", "grid"))
    write_means(tmp_path / "means" / "reproduction-lite0.csv.gz", part, "efficientnet_lite0")
    monkeypatch.setattr("sys.argv", ["tables", str(tmp_path / "means")])
    tables.main()
    printed = capsys.readouterr().out
    assert re.search(r"^\| RISE \| 57.8 % / 0.62 \| 57.8 % / 0.62 \| 57.8 % / – \|", printed, re.MULTILINE)
    assert re.search(r"^\| CAM \| .* \| – / – \|$", printed, re.MULTILINE)
    missing = printed.split("Scenes that were planned and not measured\n\n")[1]
    assert "| reproduction-lite0 | published | rise, input, σ = 0.15 | 0 of 10 grids |" in missing
    assert "| reproduction-lite0 | ours | cam, final, σ = 0.33 | 0 of 10 images |" in missing


def group(pixels, flipped, provably, abstains=None):
    return {"pixels": pixels, "flipped": flipped, "provably": provably, "abstains": abstains}


def attempt(change, multiple, inside, outside, abstaining):
    groups = {"certified in": group(100, *inside), "certified out": group(300, *outside)}
    return {"change": change, "multiple": multiple, "groups": groups | {"abstaining": group(200, *abstaining)}}


def test_attacks_are_told_of_the_pixels_at_which_they_aim(folder, tmp_path, monkeypatch, capsys):
    rows = [
        attempt("none", 0.0, (0, 0, 0), (0, 0, 0), (3, 1)),
        attempt("random", 8.0, (0, 0, 0), (0, 0, 0), (4, 2)),
        attempt("certified", 8.0, (10, 5, 20), (6, 3, 30), (50, 40)),
        attempt("abstaining", 8.0, (1, 1, 1), (1, 1, 1), (90, 80)),
    ]
    pixels = {"certified in": 100, "certified out": 300, "abstaining": 200}
    summary = [{"method": "lrp", "layer": "final", "pixels": pixels, "rows": rows}]
    shutil.copytree(folder, tmp_path / "means")
    (tmp_path / "means" / "attack").mkdir()
    (tmp_path / "means" / "attack" / "attack.json").write_text(json.dumps({"summary": summary}))
    monkeypatch.setattr("sys.argv", ["tables", str(tmp_path / "means")])
    tables.main()
    told = capsys.readouterr().out.split("Flipped pixels under attack (provably), K = 25\n\n")[1].split("\n\n")[0]
    assert told.splitlines()[2:] == [
        "| LRP, final |  | of 400 |  | of 200 |  |",
        "|  | 0 R | 0 | 0 | 3 (1), 1.5 % |  |",
        "|  | 8 R | 16 (8), 4.0 % | 50 | 90 (80), 45.0 % | 4 (2), 2.0 % |",
    ]


def test_tables_have_every_method_and_say_what_was_not_run(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tables", str(folder)])
    tables.main()
    printed = capsys.readouterr().out
    blocks = dict(zip(tables.TABLES, printed.split("\n\n")[1::2], strict=True))
    assert "not run: " in blocks.pop("Percent certified / Certified GridPG by network, K = 50, published rules")
    assert blocks.pop("Flipped pixels under attack (provably), K = 25").startswith("not run: ")
    assert blocks.pop("Scenes that were planned and not measured").strip() == "none"
    assert "| 6000 masks | 50 | 57.8 % | 57.8 % |" in blocks.pop("Percent certified by RISE against its masks")
    for block in blocks.values():
        header, rule, *lines = block.strip().splitlines()
        assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [one.short for one in pc.METHODS.values()]
        assert {line.count("|") for line in (header, rule, *lines)} == {header.count("|")}
    assert "| RISE | 25.0 / 40.0 / 57.8 % |" in blocks["Percent of pixels certified 1 / certified 0 / either, K = 50"]
