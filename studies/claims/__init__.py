"""The paper's claims, each with a rule that decides from a study's means whether it holds."""

from . import faithfulness, localisation, networks, pictures, robustness, strictness, tradeoff

CLAIMS = tuple(
    claim
    for part in (robustness, localisation, tradeoff, faithfulness, networks, strictness, pictures)
    for claim in part.CLAIMS
)
