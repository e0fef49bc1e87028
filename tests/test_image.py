"""Images: files, checks, hashes and bytes for pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from torch import Tensor

import pixelcert as pc
from pixelcert.image import check_image, image_hash, to_photo


def pixels(height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels)[: 3 if channels > 1 else 2]
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, array: np.ndarray, mode: str | None = None, **options: object) -> Path:
    picture = Image.fromarray(array)
    (picture.convert(mode) if mode else picture).save(path, **options)
    return path


def as_tensor(array: np.ndarray) -> Tensor:
    """Turn (H, W, 3) bytes into (3, H, W) in [0, 1]."""
    return torch.from_numpy(array.astype(np.float32) / 255).permute(2, 0, 1)


def load_warned(path: Path, kind: str, size: int | None = None) -> Tensor:
    with pytest.warns(pc.PixelcertWarning, match=rf"{re.escape(path.name)} is .*{kind}.*converted to RGB") as warned:
        image = pc.load_image(path, size)
    assert len(warned) == 1
    assert warned[0].filename == __file__, "the warning points at the caller"
    return image


def encoded(format_: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(48, 64)).save(buffer, format=format_)
    return buffer.getvalue()


# ── Size ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_file_of_the_right_size_is_taken_as_it_is(tmp_path: Path) -> None:
    array = pixels(224, 224)
    image = pc.load_image(save(tmp_path / "a.png", array))
    assert image.dtype == torch.float32
    assert image.is_contiguous()
    assert torch.equal(image, as_tensor(array))


def test_right_size_is_the_one_asked_for(tmp_path: Path) -> None:
    array = pixels(40, 40)
    assert torch.equal(pc.load_image(save(tmp_path / "a.png", array), size=40), as_tensor(array))


@pytest.mark.parametrize("shape", [(300, 500), (500, 300), (100, 100), (224, 300), (256, 256), (10, 1000)])
def test_other_sizes_are_brought_to_the_one_asked_for(tmp_path: Path, shape: tuple[int, int]) -> None:
    path = save(tmp_path / "a.png", pixels(*shape))
    assert pc.load_image(path).shape == (3, 224, 224)
    assert pc.load_image(path, size=64).shape == (3, 64, 64)


@pytest.mark.parametrize("shape", [(480, 640), (640, 480)])
def test_resize_and_crop_are_those_of_imagenet_models(tmp_path: Path, shape: tuple[int, int]) -> None:
    from pixelcert.models.loading import torchvision_models

    torchvision_models()
    from torchvision.transforms import v2

    picture = Image.fromarray(pixels(*shape)).resize((shape[1], shape[0]))
    picture.save(tmp_path / "a.png")
    usual = v2.Compose([v2.Resize(256), v2.CenterCrop(224)])(picture)
    assert torch.equal(pc.load_image(tmp_path / "a.png"), as_tensor(np.asarray(usual)))


def test_crop_is_in_the_middle(tmp_path: Path) -> None:
    array = np.zeros((224, 672, 3), dtype=np.uint8)
    array[:, 240:432] = 255  # the middle, wider than the crop's 196 of these pixels on neither side
    image = pc.load_image(save(tmp_path / "wide.png", array))
    assert image[:, :, 4:-4].min() > 0.99
    assert torch.equal(image, image.flip(2))


def test_size_none_keeps_the_files_own(tmp_path: Path) -> None:
    array = pixels(30, 50)
    assert torch.equal(pc.load_image(save(tmp_path / "a.png", array), size=None), as_tensor(array))


@pytest.mark.parametrize("size", [0, -1])
def test_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(pc.PixelcertError, match=f"size={size}"):
        pc.load_image(save(tmp_path / "a.png", pixels(30, 50)), size=size)


def test_path_may_be_a_string(tmp_path: Path) -> None:
    assert pc.load_image(str(save(tmp_path / "a.png", pixels(8, 8))), size=None).shape == (3, 8, 8)


# ── Kinds of files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_rgb_gives_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    pc.load_image(save(tmp_path / "a.jpg", pixels(224, 224)))
    assert not recwarn.list


def test_grey_is_converted(tmp_path: Path) -> None:
    array = pixels(20, 30, channels=1)
    image = load_warned(save(tmp_path / "grey.png", array), "grey")
    assert torch.equal(image, as_tensor(np.stack([array] * 3, axis=2)))


def test_sixteen_bit_grey_keeps_its_range(tmp_path: Path) -> None:
    array = pixels(20, 30, channels=1)
    path = tmp_path / "deep.png"
    Image.fromarray(array.astype(np.uint16) * 257).save(path)
    image = load_warned(path, "16-bit grey")
    assert torch.equal(image, as_tensor(np.stack([array] * 3, axis=2)))


def test_sixteen_bit_grey_is_rounded_to_the_nearest_level(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 2**16, (20, 30), dtype=np.uint16)
    Image.fromarray(array).save(tmp_path / "deep.png")
    image = load_warned(tmp_path / "deep.png", "16-bit grey")
    error = image - torch.from_numpy(array.astype(np.float32) / 65535)
    assert error.abs().max() * 255 < 0.5 + 1e-3


def test_black_and_white_is_converted(tmp_path: Path) -> None:
    image = load_warned(save(tmp_path / "bw.png", pixels(20, 30, channels=1), "1"), "black and white")
    assert set(image.unique().tolist()) == {0.0, 1.0}


def test_palette_is_converted(tmp_path: Path) -> None:
    array = np.zeros((20, 30, 3), dtype=np.uint8)
    array[:, :10], array[:, 10:20] = (200, 30, 7), (1, 2, 250)
    picture = Image.fromarray(array).quantize(4)
    picture.save(tmp_path / "few.png")
    image = load_warned(tmp_path / "few.png", "palette")
    assert torch.equal(image, as_tensor(np.asarray(picture.convert("RGB"))))
    assert (image - as_tensor(array)).abs().max() < 0.05


def test_cmyk_is_converted(tmp_path: Path) -> None:
    assert load_warned(save(tmp_path / "print.jpg", pixels(20, 30), "CMYK"), "CMYK").shape == (3, 20, 30)


def test_transparent_is_laid_on_white(tmp_path: Path) -> None:
    array = np.zeros((4, 4, 4), dtype=np.uint8)
    array[..., 0] = 255  # red
    array[0, :, 3], array[1, :, 3], array[2:, :, 3] = 0, 128, 255
    image = load_warned(save(tmp_path / "glass.png", array), "transparent, and laid on white")
    assert torch.equal(image[:, 0], torch.ones(3, 4))
    assert torch.equal(image[:, 2:], torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1).expand(3, 2, 4))
    assert image[1, 1].tolist() == pytest.approx([1 - 128 / 255] * 4, abs=0.005)


def test_palette_with_a_transparent_colour_is_laid_on_white(tmp_path: Path) -> None:
    picture = Image.new("P", (4, 4), 0)
    picture.putpalette([0, 0, 0, 255, 0, 0])
    picture.putpixel((1, 2), 1)
    picture.save(tmp_path / "icon.png", transparency=0)
    image = load_warned(tmp_path / "icon.png", "transparent")
    assert image[:, 2, 1].tolist() == [1, 0, 0]
    assert image[:, 0, 0].tolist() == [1, 1, 1]


def test_grey_with_alpha_is_laid_on_white(tmp_path: Path) -> None:
    picture = Image.new("LA", (2, 1), (0, 0))
    picture.putpixel((1, 0), (0, 255))
    picture.save(tmp_path / "la.png")
    assert load_warned(tmp_path / "la.png", "transparent")[:, 0].T.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_lab_is_not_taken_for_transparent(tmp_path: Path) -> None:
    rgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    picture = Image.fromarray(pixels(20, 30))
    ImageCms.applyTransform(picture, ImageCms.buildTransform(rgb, lab, "RGB", "LAB")).save(tmp_path / "lab.tif")
    with pytest.warns(pc.PixelcertWarning, match="LAB"):
        pc.load_image(tmp_path / "lab.tif")


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_of_unknown_range_are_refused_with_the_remedy(tmp_path: Path, dtype: type) -> None:
    path = save(tmp_path / "depth.tif", pixels(20, 30, channels=1).astype(dtype))
    with pytest.raises(pc.ImageError, match=r"depth\.tif has pixels of type .* save it as 8 or 16 bits") as refused:
        pc.load_image(path)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize(
    ("orientation", "undo"),
    [(1, lambda a: a), (3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1)), (8, lambda a: np.rot90(a))],
)
def test_orientation_of_a_photograph_is_honoured(tmp_path: Path, orientation: int, undo) -> None:
    array = pixels(6, 9)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = pc.load_image(save(tmp_path / "phone.png", array, exif=exif), size=None)
    assert torch.equal(image, as_tensor(undo(array)))


# ── Files that cannot be read ─────────────────────────────────────────────────────────────────────────────────────


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pc.ImageError, match=r"nowhere\.png does not exist: check the path"):
        pc.load_image(tmp_path / "nowhere.png")


@pytest.mark.parametrize("content", [b"", b"hello\n", b"<!DOCTYPE html>"])
def test_file_that_is_no_image_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.png").write_bytes(content)
    with pytest.raises(pc.ImageError, match=r"notes\.png is not an image that Pillow can read: convert it"):
        pc.load_image(tmp_path / "notes.png")


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_file_cut_short_anywhere_is_refused(tmp_path: Path, format_: str) -> None:
    content, path = encoded(format_), tmp_path / f"cut.{format_.lower()}"
    for share in (0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(pc.ImageError, match=re.escape(str(path))):
            pc.load_image(path)


def test_open_files_are_read_like_paths(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", pixels(30, 30))
    with path.open("rb") as file:
        assert torch.equal(pc.load_image(file, 16), pc.load_image(path, 16))
    path.write_text("no image")
    with path.open("rb") as file, pytest.raises(pc.ImageError, match=re.escape(f"{path} is not an image")):
        pc.load_image(file)


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pc.ImageError, match=re.escape(str(tmp_path))):
        pc.load_image(tmp_path)


# ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def good() -> Tensor:
    return torch.rand(3, 8, 10, generator=torch.Generator().manual_seed(0))


def test_good_image_passes_unchanged() -> None:
    assert torch.equal(check_image(good(), channels=3), good())


def test_both_ends_of_the_range_pass() -> None:
    assert check_image(torch.tensor([0.0, 1.0]).view(1, 1, 2)).flatten().tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_arrays_pass(dtype: type) -> None:
    array = good().numpy().astype(dtype)
    image = check_image(array, channels=3)
    assert isinstance(image, Tensor)
    assert np.array_equal(image.numpy(), array)


def test_flipped_numpy_array_passes() -> None:
    assert torch.equal(check_image(good().numpy()[:, :, ::-1]), good().flip(2))


def test_image_comes_out_without_a_graph() -> None:
    image = check_image(good().requires_grad_() * 0.5)
    assert not image.requires_grad
    votes = pc.sample(lambda x, targets: x.sum(dim=1), good().requires_grad_(), 0, n=2, tau=None)
    assert votes.counted == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused_and_counted(bad: float) -> None:
    image = good()
    image[0, 1, 2] = image[2, 7, 9] = bad
    with pytest.raises(pc.ImageError, match="2 values that are NaN or infinite"):
        check_image(image)


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (torch.full((3, 4, 4), 255.0) * torch.linspace(0, 1, 4), "from 0 to 255"),
        (torch.linspace(-2.5, 0.5, 48).view(3, 4, 4), r"from -2\.5 to 0\.5"),
        (torch.linspace(0, 1.0001, 48).view(3, 4, 4), "from 0 to 1"),
        (torch.linspace(-1e-6, 1, 48).view(3, 4, 4), "from -1e-06 to 1"),
    ],
)
def test_values_outside_zero_to_one_are_refused_with_range_and_remedy(image: Tensor, told: str) -> None:
    with pytest.raises(pc.ImageError, match=rf"{told}.*\[0, 1\].*divide by 255, or undo mean and std"):
        check_image(image)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_are_refused_with_the_remedy(dtype: torch.dtype) -> None:
    with pytest.raises(pc.ImageError, match=rf"{dtype}.*image\.float\(\) / 255"):
        check_image(torch.ones(3, 4, 4, dtype=dtype))


@pytest.mark.parametrize("shape", [(1, 3, 8, 10), (8, 10)])
def test_anything_but_three_dimensions_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(pc.ImageError, match=rf"shape {re.escape(str(shape))}.*\(C, H, W\)"):
        check_image(torch.rand(shape))


def test_channels_last_is_refused_with_the_remedy() -> None:
    with pytest.raises(pc.ImageError, match=r"8 channels and the model takes 3.*image\.permute\(2, 0, 1\)"):
        check_image(good().permute(1, 2, 0), channels=3)


def test_wrong_number_of_channels_is_refused_without_that_hint() -> None:
    with pytest.raises(pc.ImageError, match="1 channels and the model takes 3") as refused:
        check_image(good()[:1], channels=3)
    assert "permute" not in str(refused.value)


@pytest.mark.parametrize("shape", [(3, 0, 4), (3, 4, 0), (0, 4, 4)])
def test_image_without_pixels_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(pc.ImageError, match=re.escape(str(shape))):
        check_image(torch.zeros(shape))


@pytest.mark.parametrize("thing", ["cat.png", None, Image.new("RGB", (4, 4))], ids=["path", "None", "Pillow"])
def test_anything_but_numbers_is_refused(thing: object) -> None:
    with pytest.raises(pc.ImageError, match="load_image"):
        check_image(thing)  # type: ignore[arg-type]


# ── Hash and photo ────────────────────────────────────────────────────────────────────────────────────────────────


def test_hash_depends_on_every_pixel() -> None:
    image = torch.zeros(3, 4, 5)
    hashes = {image_hash(image)}
    for i in range(image.numel()):
        changed = image.clone()
        changed.view(-1)[i] = 2**-20
        hashes.add(image_hash(changed))
    assert len(hashes) == 1 + 60


def test_hash_depends_on_the_shape() -> None:
    assert image_hash(torch.zeros(3, 4, 5)) != image_hash(torch.zeros(3, 5, 4))


def test_hash_does_not_depend_on_the_layout_in_memory() -> None:
    assert image_hash(good()) == image_hash(good().permute(1, 2, 0).contiguous().permute(2, 0, 1))


def test_photo_of_rgb_is_rounded_to_bytes() -> None:
    array = pixels(6, 7)
    photo = to_photo(as_tensor(array))
    assert photo is not None
    assert photo.dtype == np.uint8
    assert photo.flags.c_contiguous
    assert np.array_equal(photo, array)
    assert np.array_equal(to_photo(as_tensor(array) * 0.999 + 0.0005), array)


def test_photo_of_grey_has_three_equal_channels() -> None:
    photo = to_photo(torch.tensor([[[0.0, 1.0]]]))
    assert photo is not None
    assert photo.tolist() == [[[0, 0, 0], [255, 255, 255]]]


@pytest.mark.parametrize("channels", [2, 4])
def test_other_images_have_no_photo(channels: int) -> None:
    assert to_photo(torch.rand(channels, 4, 4)) is None
