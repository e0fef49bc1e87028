"""Effect of the precision: percent certified and labels in float32, TF32 and bfloat16, on real photographs.

    python -m bench.precision --weights resnet18.safetensors --images FOLDER [--count 10]

FOLDER holds photographs and a labels.csv with the columns file and label. The first photographs that the model gets
right with confidence of at least 0.99 are certified. The last column shows the effect of another seed of the noise.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import pixelcert as pc

from .machine import head, machine_in_words, row, say

LEVELS = (50, 25, 10, 5)
FORMATS = ("float32", "tf32", "bfloat16")


def confident_images(model: pc.Classifier, folder: Path, count: int) -> list[tuple[torch.Tensor, int]]:
    """Return the first `count` photographs classified correctly with confidence of at least 0.99, and their labels."""
    chosen = []
    for photograph in csv.DictReader((folder / "labels.csv").read_text().splitlines()):
        image, label = pc.load_image(folder / photograph["file"]), int(photograph["label"])
        answer, confidence = model.predict(image)
        if answer == label and confidence >= 0.99:
            chosen.append((image, label))
        if len(chosen) == count:
            return chosen
    raise SystemExit(
        f"{folder} has only {len(chosen)} of {count} images classified with confidence of at least 0.99: "
        f"add photographs, or ask for fewer with --count."
    )


class Change(NamedTuple):
    """Change against float32 over all images and levels, in percent of the labels."""

    certified: float  # how many are certified
    differing: float  # certified in only one of the two, or differently
    opposite: float  # certified 1 in one and 0 in the other


def compare(base: list[pc.Certificate], other: list[pc.Certificate]) -> Change:
    first, second = (np.stack([c.labels[level] for c in some for level in LEVELS]) for some in (base, other))
    both = (first != pc.ABSTAIN) & (second != pc.ABSTAIN)
    return Change(
        100 * float((second != pc.ABSTAIN).mean()),
        100 * float((first != second).mean()),
        100 * float((both & (first != second)).mean()),
    )


def certify_all(explainer: pc.Method, images: list[tuple[torch.Tensor, int]], **how: Any) -> list[pc.Certificate]:
    return [pc.certify(explainer, image, label, levels=LEVELS, **how) for image, label in images]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--masks", type=int, default=1000, help="RISE's masks")
    parser.add_argument("--methods", nargs="*", default=list(pc.METHODS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)  # some maps are constant at the final layer

    model = pc.load_model(options.model, weights=options.weights)
    images = confident_images(model, options.images, options.count)
    formats = [name for name in FORMATS if name != "tf32" or model.device.type == "cuda"]
    say(
        f"{machine_in_words(model.device)}; {options.model}, {len(images)} images, n = 100, σ = 0.15, levels {LEVELS}\n"
    )
    lower = formats[1:]
    head(
        "method",
        "layer",
        *(f"certified in {name}" for name in formats),
        *(f"labels that differ in {name} (opposite)" for name in lower),
        "with another seed",
    )
    for name in options.methods:
        for layer in ("input", "final"):
            params = {"masks": options.masks} if name == "rise" else {}
            explainer = pc.method(name, model, layer, **params)
            base = certify_all(explainer, images, precision="float32")
            changes = [compare(base, certify_all(explainer, images, precision=each)) for each in lower]
            luck = compare(base, certify_all(explainer, images, precision="float32", seed=1))
            row(
                explainer.title,
                layer,
                f"{compare(base, base).certified:.2f} %",
                *(f"{change.certified:.2f} %" for change in changes),
                *(f"{change.differing:.2f} % ({change.opposite:.3f} %)" for change in changes),
                f"{luck.differing:.2f} % ({luck.opposite:.3f} %)",
            )


if __name__ == "__main__":
    main()
