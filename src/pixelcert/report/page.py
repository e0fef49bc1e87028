"""One self-contained page: pictures, shares and the guarantee in plain words. No network, opens from disk."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

from ..certificate import Certificate
from ..statistics import rounded_down

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
img { width: 100%; height: auto; background: white; border-radius: 6px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .9rem; text-align: right; border-bottom: 1px solid #8884; } th:first-child { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .85rem; opacity: .8; }
dd { margin: 0; overflow-wrap: anywhere; }
"""


def certificate_page(certificates: Sequence[Certificate]) -> str:
    """HTML of a page that shows `certificates` one below the other."""
    sections = "\n".join(_section(certificate) for certificate in certificates)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Certified explanations</title>
<style>{_STYLE}</style>
<body>
<h1>Which pixels of these explanations can be trusted?</h1>
<p>Each photograph was explained many times under random noise. A pixel is coloured where it robustly belongs to the
top K % of the explanation, white where it robustly does not, and grey where nothing can be promised.</p>
{sections}
<h2>What this means</h2>
<p>The majority label of a pixel says whether most noisy copies of an image have it in the top K % of their
explanations. Each promise is about this majority, for the class named and for this model; the overlay (for all K) and
the radius map (for all τ) make theirs apart, at the same α. Grey pixels may or may not be stable, and a certified pixel
need not be certified again at a changed image. That an explanation is robust does not make it right.</p>
</body>
</html>
"""


def _section(certificate: Certificate) -> str:
    source, plan = certificate.votes.provenance, certificate.votes.plan
    name = escape(source.image_name or "image")
    rows = "\n".join(_row(certificate, level) for level in certificate.levels)
    facts = {
        "method": f"{source.method} {source.params or ''} at {source.layer}",
        "model": f"{source.model}, weights {source.weights[:16]}",
        "noise": f"σ = {plan.sigma}, n = {plan.n}, seed {plan.seed}",
        "test": f"τ = {certificate.tau}, α = {certificate.alpha}, {certificate.correction}",
        "radius": f"R = {rounded_down(certificate.radius)} in ℓ2, pixels in [0, 1]",
        "versions": ", ".join(f"{library} {version}" for library, version in source.versions.items()),
    }
    details = "\n".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    headings = "".join(f'<th scope="col">{text}</th>' for text in ("robustly in", "robustly out", "abstain"))
    target = escape(source.target_name)
    return f"""<section>
<h2>{name}: {target}</h2>
<img alt="Photograph, smoothed map, certified maps, overlay and radius map of {name}" src="{_picture(certificate)}">
<div class="scroll"><table>
<tr><th scope="col">top K %</th>{headings}</tr>
{rows}
</table></div>
<p>{escape(certificate.promise)}</p>
<dl>
{details}
</dl>
</section>"""


def _row(certificate: Certificate, level: float) -> str:
    cells = "".join(f"<td>{share:.1f} %</td>" for share in certificate.shares(level))
    return f'<tr><th scope="row">{level} %</th>{cells}</tr>'


def _picture(certificate: Certificate) -> str:
    buffer = io.BytesIO()
    certificate.plot().savefig(buffer, format="png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
