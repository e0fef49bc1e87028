"""How much each method certifies at each layer, with a real network on real photographs.

    python -m bench.certified_shares --weights resnet18.safetensors --images FOLDER

FOLDER holds the photographs and a labels.csv with the columns file and label. The first ones that the model gets right
with confidence of at least 0.99 are certified by the published code's rules (preset "reference") and by ours.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path

import torch

import pixelcert as pc


def confident_images(model: pc.Classifier, folder: Path, count: int) -> list[tuple[torch.Tensor, int]]:
    """The first `count` photographs classified correctly with confidence of at least 0.99, and their labels."""
    chosen = []
    for row in csv.DictReader((folder / "labels.csv").read_text().splitlines()):
        image, label = pc.load_image(folder / row["file"]), int(row["label"])
        answer, confidence = model.predict(image)
        if answer == label and confidence >= 0.99:
            chosen.append((image, label))
        if len(chosen) == count:
            return chosen
    raise SystemExit(f"only {len(chosen)} of {count} images are classified with confidence of at least 0.99")


def mean_shares(explainer: pc.Method, images: list[tuple[torch.Tensor, int]], preset: str, level: float) -> pc.Shares:
    shares = [
        pc.certify(explainer, image, label, preset=preset, levels=(level,)).shares(level) for image, label in images
    ]
    return pc.Shares(*(sum(values) / len(shares) for values in zip(*shares, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--masks", type=int, default=1000, help="of RISE")
    parser.add_argument("--level", type=float, default=50)
    parser.add_argument("--methods", nargs="*", default=list(pc.METHODS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", pc.PixelcertWarning)  # constant maps at the final layer

    model = pc.load_model(options.model, weights=options.weights)
    images = confident_images(model, options.images, options.count)
    where = torch.cuda.get_device_name() if model.device.type == "cuda" else "CPU"
    print(f"{options.model}, {len(images)} images, K = {options.level:g} %, n = 100, σ = 0.15, {where}\n", flush=True)
    print(
        "| method | layer | reference: ones / zeros / certified | ours: ones / zeros / certified |\n|---|---|---|---|"
    )
    for name in options.methods:
        params = {"masks": options.masks} if name == "rise" else {}
        for layer in ("input", "final"):
            explainer = pc.method(name, model, layer, **params)
            cells = []
            for preset in ("reference", "default"):
                ones, zeros, abstained = mean_shares(explainer, images, preset, options.level)
                cells.append(f"{ones:.1f} / {zeros:.1f} / {100 - abstained:.1f} %")
            print(f"| {explainer.title} | {layer} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
