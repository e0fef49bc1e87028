"""Images: read from files as (C, H, W) floats in [0, 1], and checked before sampling."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F

from .basics.files import sha256
from .basics.messages import ImageError, PixelcertWarning, check_whole


def load_image(path: str | Path | BinaryIO, size: int | None = 224) -> Tensor:
    """Read an image file, or a file already open, as (3, size, size) in [0, 1].

    A square image of the right size is not resized. Any other is resized until its short side is size·256/224, and
    its centre is cut out, as ImageNet models expect. `size=None` keeps the file's own size. Grey, palette and
    transparent images are converted to RGB, with a warning.
    """
    if size is not None:
        check_whole("size", size, 1, example=224)
    name = path if isinstance(path, (str, Path)) else getattr(path, "name", "image")
    with _reading(name), Image.open(path) as file:
        picture = ImageOps.exif_transpose(file)
        picture.load()
    picture = _to_rgb(picture, name)
    if size is not None and picture.size != (size, size):
        picture = _centre_crop(picture, size)
    return torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


def check_image_file(path: str | Path) -> None:
    """Refuse a file that is not an image. Only its first bytes are read; its pixels are not decoded."""
    with _reading(path), Image.open(path):
        pass


@contextmanager
def _reading(name: object) -> Iterator[None]:
    """Turn Pillow's errors into an ImageError that names the file and the remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise ImageError(f"{name} does not exist: check the path.") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is not an image that Pillow can read: convert it to PNG or JPEG.") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError(f"{name} is damaged or cannot be read ({error}): open and save it again.") from error


def check_image(image: Tensor | NDArray[np.floating], channels: int | None = None) -> Tensor:
    """Return `image` as a float tensor; refuse anything but pixels (C, H, W) in [0, 1]."""
    if not isinstance(image, (Tensor, np.ndarray)):
        raise ImageError(f"image is {type(image).__name__}: give a tensor (C, H, W); load_image(path) reads a file.")
    image = image.detach() if isinstance(image, Tensor) else torch.from_numpy(np.ascontiguousarray(image))
    if image.ndim != 3 or image.numel() == 0:
        raise ImageError(f"image has shape {tuple(image.shape)}: give one image as (C, H, W).")
    if not image.is_floating_point():
        raise ImageError(f"image has dtype {image.dtype}: give floats in [0, 1], such as image.float() / 255.")
    if channels is not None and image.shape[0] != channels:
        hint = ": channels come first, use image.permute(2, 0, 1)" if image.shape[2] == channels else ""
        raise ImageError(f"image has {image.shape[0]} channels and the model takes {channels}{hint}.")
    # NumPy finds the bounds: to start torch's threads takes longer than to look at one image.
    values = (image.float() if image.dtype == torch.bfloat16 else image).cpu().numpy()
    low, high = float(values.min()), float(values.max())  # NaN if any value is
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ImageError(f"image has {int((~image.isfinite()).sum())} values that are NaN or infinite: repair them.")
    if low < 0 or high > 1:
        raise ImageError(
            f"image has values from {low:.4g} to {high:.4g}: give pixels in [0, 1], before any normalisation "
            f"(divide by 255, or undo mean and std; Classifier applies them after the noise)."
        )
    return image


def resize_image(image: Tensor, size: int) -> Tensor:
    """Resize an image (C, H, W) to (C, size, size), bilinearly and without aliasing; it stays in [0, 1].

    Use it for a model that takes only one size. It comes before the noise, so the certificate is about the resized
    image: its radius holds for changes of the resized pixels, not of the original ones.
    """
    check_whole("size", size, 1, example=224)
    image = check_image(image)
    resized = F.interpolate(image[None], size=(size, size), mode="bilinear", align_corners=False, antialias=True)[0]
    return resized.clamp(0, 1)  # rounding may step outside


def image_hash(image: Tensor) -> str:
    """Return the SHA-256 of an image's shape and float32 values."""
    return sha256(str(tuple(image.shape)).encode(), image.float().cpu().contiguous().numpy().data)


def to_photo(image: Tensor) -> NDArray[np.uint8] | None:
    """Return bytes (H, W, 3) for pictures, or None for an image that is neither grey nor RGB."""
    if image.shape[0] not in (1, 3):
        return None
    grey_levels = np.rint(image.cpu().numpy() * 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(grey_levels, (3, *image.shape[1:])).transpose(1, 2, 0))


def _to_rgb(picture: Image.Image, path: str | Path) -> Image.Image:
    """Convert a picture of any other kind, with a warning that names `path`."""
    if picture.mode == "RGB":
        return picture
    kind = {"L": "grey", "1": "black and white", "P": "a palette image"}.get(picture.mode, picture.mode)
    if picture.mode.startswith(("I", "F")):
        if not picture.mode.startswith("I;16"):
            raise ImageError(
                f"{path} has pixels of type {picture.mode}, whose range is unknown: save it as 8 or 16 bits."
            )
        picture = Image.fromarray(((np.asarray(picture, dtype=np.uint32) + 128) // 257).astype(np.uint8))
        kind = "16-bit grey"
    elif picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        kind = "transparent, and laid on white"
    warnings.warn(f"{Path(path).name} is {kind}; converted to RGB.", PixelcertWarning, stacklevel=3)
    return picture.convert("RGB")


def _centre_crop(picture: Image.Image, size: int) -> Image.Image:
    scale = size * 256 / 224 / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.crop((left, top, left + size, top + size))
