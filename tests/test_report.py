import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from pixelcert.report import certificate_page


class Tags(HTMLParser):
    """Collects the page's tags with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def test_page_shows_each_certificate_with_its_picture_and_shares(make_votes):
    certificates = [make_votes(source={"image_name": name}).certify() for name in ("one.png", "two.png")]
    page = Tags(certificate_page(certificates))
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 2
    for picture in pictures:
        data = base64.b64decode(picture["src"].removeprefix("data:image/png;base64,"))
        assert np.asarray(Image.open(io.BytesIO(data))).std() > 0
        assert "Photograph" in picture["alt"]
    for certificate in certificates:
        assert f"{certificate.shares(50).ones:.1f} %" in page.text
    for words in ("one.png: tabby", "two.png: tabby", "σ = 0.15", "τ = 0.75", "α = 0.001", "R = 0.10"):
        assert words in page.text


def test_page_asks_nothing_of_the_network(make_votes):
    page = certificate_page([make_votes().certify()])
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)


def test_hostile_names_are_only_text(make_votes):
    hostile = "<img src=x onerror=alert(1)>"
    source = {
        "image_name": hostile,
        "model": hostile,
        "method": hostile,
        "layer": hostile,
        "class_names": {"281": hostile},
    }
    page = Tags(certificate_page([make_votes(source=source).certify()]))
    assert [attributes["src"][:5] for tag, attributes in page.tags if tag == "img"] == ["data:"]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert page.text.count(hostile) >= 4
