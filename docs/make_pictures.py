"""Certify the embedded photographs by every method, and draw the galleries of the pages on the methods.

python docs/make_pictures.py sample FOLDER     # votes of every method and layer; minutes on a GPU
python docs/make_pictures.py draw FOLDER       # docs/images/FAMILY-PHOTO.png from them
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pixelcert as pc
from pixelcert.figures import certificate_gallery
from pixelcert.models.loading import photographs

LAYERS = ("input", "final")


def sample(folder: Path) -> None:
    model = pc.load_model("efficientnet_lite0")
    for photo in photographs():
        image = pc.load_image(photo)
        target, _ = model.predict(image)
        for name in pc.METHODS:
            for layer in LAYERS:
                votes = pc.sample(pc.method(name, model, layer), image, target, seed=0, image_name=photo.name)
                print(votes.save(folder / f"{photo.stem}-{name}-{layer}.safetensors"), flush=True)


def draw(folder: Path) -> None:
    for photo in photographs():
        for family in dict.fromkeys(method.family for method in pc.METHODS.values()):
            rows = {
                method.title: [
                    pc.Votes.load(folder / f"{photo.stem}-{name}-{layer}.safetensors").certify() for layer in LAYERS
                ]
                for name, method in pc.METHODS.items()
                if method.family == family
            }
            path = Path(__file__).parent / "images" / f"{family}-{photo.stem}.png"
            certificate_gallery(rows).savefig(path)
            print(path)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("sample", "draw"):
        raise SystemExit(__doc__)
    warnings.simplefilter("ignore", pc.PixelcertWarning)
    {"sample": sample, "draw": draw}[sys.argv[1]](Path(sys.argv[2]))
