"""Photograph the interactive page in Chromium: docs/images/page-desktop.png, page-phone.png and page-dark.png.

python docs/make_page_pictures.py FOLDER     # of votes files, such as `docs/make_pictures.py sample FOLDER` leaves
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import pixelcert as pc
from pixelcert.report import write_page

IMAGES = Path(__file__).parent / "images"
FIRST = ("coffee-grad_cam-final", "coffee-layer_cam-final")  # shown alone, and beside it
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def open_page(browser: Browser, page: Path, width: int, height: int, **context: object) -> Page:
    opened = browser.new_page(viewport={"width": width, "height": height}, **context)  # type: ignore[arg-type]
    opened.goto(page.as_uri())
    opened.wait_for_selector("#first .shares")
    return opened


def save(picture: bytes, name: str) -> None:
    """As a PNG of 256 colours: a third of the size, and no difference to see."""
    path = IMAGES / name
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(path, optimize=True)
    print(path, path.stat().st_size)


def photograph(page: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)

        desk = open_page(browser, page, 1280, 1190)
        desk.hover("#first canvas.pixels")
        save(desk.screenshot(), "page-desktop.png")

        phone = open_page(browser, page, 390, 920, has_touch=True, is_mobile=True, device_scale_factor=2)
        save(phone.screenshot(), "page-phone.png")

        dark = open_page(browser, page, 1280, 1370, color_scheme="dark")
        dark.check("#compare")
        dark.wait_for_selector("#agreement-table td")
        save(dark.screenshot(), "page-dark.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(Path(sys.argv[1]).glob("*.safetensors"), key=lambda file: (file.stem not in FIRST, file.stem))
        votes = [pc.Votes.load(file) for file in files]
        photograph(write_page(Path(folder) / "report.html", votes).page)
