"""Attacks on the certified explanations of a study's first photographs.

    python -m studies.attack studies/reproduction.toml

Certify three methods with `pixelcert certify`, then attack them with `pixelcert attack`. Options that this script does
not know go to `pixelcert attack`. The votes and attack.json are written to a folder `attack` beside the study file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pixelcert as pc
from pixelcert.study.inventory import Inventory, image_folder

MODEL, METHODS, LAYER, LEVEL = "resnet18", ("grad_cam", "layer_cam", "rise"), "final", 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--images", type=int, default=10)
    options, more = parser.parse_known_args()
    study = pc.Study.open(options.study)
    folder = Path(image_folder(study.settings, study.base))
    photographs = [folder / chosen.file for chosen in Inventory.load(study.folder).selection.photographs]
    weights = study.base / study.settings.model_named(MODEL).weights
    attack(photographs[: options.images], ("--model", MODEL, "--weights", weights), study.base / "attack", *more)


def attack(photographs: list[Path], model: tuple[str | Path, ...], out: Path, *more: str) -> None:
    for method in METHODS:
        options = ("--method", method, "--layer", LAYER, "-K", str(LEVEL), "--out", out, "--no-picture")
        _pixelcert("certify", *photographs, *model, *options).check_returncode()
    votes = [out / f"{file.stem}-{method}-{LAYER}.safetensors" for method in METHODS for file in photographs]
    attacks = _pixelcert("attack", *votes, *model, *more, "--json", stdout=subprocess.PIPE)
    if attacks.stdout:  # a broken certificate also changes the exit code
        (out / "attack.json").write_bytes(attacks.stdout)
    attacks.check_returncode()


def _pixelcert(*arguments: str | Path, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((sys.executable, "-m", "pixelcert", *arguments), stdout=stdout, check=False)


if __name__ == "__main__":
    main()
