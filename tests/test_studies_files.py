"""The study files in studies/, and the network and the experiment that they need."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

import pixelcert as pc
from pixelcert.models.loading import photographs
from pixelcert.study.settings import load_settings
from pixelcert.study.templates import template
from studies import attack, networks, rounding, tables
from studies.claims import __main__ as claims
from studies.evidence import attacks

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
SHARED = ROOT.parent / "shared"
needs_weights = pytest.mark.skipif(not (SHARED / "weights").exists(), reason="needs the real weights in ../shared")


def settings(name: str):
    return load_settings(ROOT / "studies" / f"{name}.toml")


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_every_study_file_asks_for_the_papers_plan(file):
    study, paper = load_settings(file), settings("paper")
    for name in ("n", "levels", "tau", "alpha", "seed", "deletion_taus"):
        assert getattr(study, name) == getattr(paper, name), name
    assert set(study.sigma) <= set(paper.sigma)


def test_paper_is_what_init_writes_with_both_presets(tmp_path):
    (tmp_path / "paper.toml").write_bytes(template("paper"))
    written = load_settings(tmp_path / "paper.toml")
    assert written.deletion == settings("paper").deletion_taus
    assert settings("paper") == written.model_copy(update={"presets": ("reference", "default"), "deletion": None})


def test_reproduction_has_all_cells_and_enough_scenes():
    study = settings("reproduction")
    assert study.methods == tuple(pc.METHODS)
    assert study.layers == ("input", "final")
    assert (study.images.count, study.grids.count) == (50, 30)


@pytest.mark.parametrize("part", ["reproduction-radii", "reproduction-signs", "reproduction-masks"])
def test_parts_are_on_the_first_photographs_of_the_whole(part):
    """The same folder, filter and seed: a selection of fewer photographs is the beginning of that of more."""
    whole, study = settings("reproduction").images, settings(part).images
    assert study == whole.model_copy(update={"count": study.count})
    assert study.count < whole.count
    assert settings(part).model == settings("reproduction").model


@needs_weights
def test_resnet50_v1_classifies_photographs_only_with_its_own_strides(monkeypatch):
    monkeypatch.setattr(networks, "WEIGHTS", SHARED / "weights")
    rows = list(csv.DictReader((SHARED / "images" / "labels.csv").read_text().splitlines()))[:24]
    images = torch.stack([pc.load_image(SHARED / "images" / row["file"]) for row in rows])
    labels = torch.tensor([int(row["label"]) for row in rows])
    other = pc.load_model("resnet50", SHARED / "weights" / "resnet50-v1.fp16.safetensors", "cpu")
    with torch.no_grad():
        right, wrong = ((model(images).argmax(1) == labels).float().mean() for model in (networks.resnet50_v1(), other))
    assert right >= 0.75
    assert wrong < right


@needs_weights
def test_gradients_at_the_final_layer_differ_by_rounding_alone(monkeypatch, capsys):
    image = sorted((SHARED / "images").glob("*.jpg"))[0]
    monkeypatch.setattr("sys.argv", ["rounding", str(image), "--weights", str(SHARED / "weights/resnet18.safetensors")])
    rounding.main()
    first, *levels = capsys.readouterr().out.splitlines()
    assert float(first.rpartition(", ")[2].removesuffix(" apart")) < 1e-6
    assert len(levels) == 3
    assert all(line.endswith("100.0 % the same in every copy") for line in levels)


def test_attack_leaves_what_the_tables_read(tmp_path, monkeypatch):
    """On the embedded model and photograph, with few steps and copies."""
    monkeypatch.setattr(attack, "METHODS", ("grad_cam",))
    few = ("--steps", "1", "--draws", "2", "-n", "40", "--radius", "0.1")
    attack.attack(photographs(("coffee.png",)), ("--model", "efficientnet_lite0"), tmp_path / "attack", *few)
    (summary,) = attacks(tmp_path)["summary"]
    assert (summary["method"], summary["layer"], summary["level"], summary["images"]) == ("grad_cam", "final", 25, 1)
    told = tables.attacked(tables.Folder(tmp_path))
    assert told.splitlines()[2].startswith("| Grad-CAM, final |  | of ")


# ── docs/reproduction.md ──────────────────────────────────────────────────────────────────────────────────────────

PAGE = (ROOT / "docs" / "reproduction.md").read_text()


def printed(module, monkeypatch, capsys) -> str:
    monkeypatch.setattr("sys.argv", ["studies", str(ROOT / "studies" / "results")])
    module.main()
    return capsys.readouterr().out


def test_the_page_shows_the_tables_that_the_command_prints(monkeypatch, capsys):
    blocks = printed(tables, monkeypatch, capsys).split("\n\n")
    made = [block for block in blocks if block.startswith("| ")]
    assert len(made) >= 6
    assert [block for block in made if block not in PAGE] == []


def test_the_page_shows_the_verdicts_that_the_command_prints(monkeypatch, capsys):
    verdicts, *parts = printed(claims, monkeypatch, capsys).strip().split("\n\n")
    judged = [part for part in parts if "\n" in part]
    assert len(judged) >= 30
    assert verdicts in PAGE
    assert [part for part in judged if part not in PAGE] == []
