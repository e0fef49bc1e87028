"""Shown: votes under the names by which a page lets people choose them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..plan import PRESETS, Plan
from ..votes import Votes


@dataclass(frozen=True)
class Shown:
    """Votes, and what they are called: by their own provenance, or by the study that asked for them."""

    votes: Votes
    image: str
    model: str
    method: str
    layer: str

    @classmethod
    def of(cls, votes: Votes) -> Shown:
        source = votes.provenance
        return cls(votes, source.image_name or "image", source.model, source.method, source.layer)

    @property
    def choices(self) -> dict[str, str]:
        """What tells these votes from others, the most telling first."""
        plan, source = self.votes.plan, self.votes.provenance
        return {
            "Image": self.image,
            "Model": self.model or "not named",
            "Method": self.method or "not named",
            "Layer": self.layer or "not named",
            "Noise σ": f"{plan.sigma:g}",
            "Samples n": str(plan.n),
            "Rules": rules_in_words(plan),
            "Class": source.target_name,
            "Parameters": json.dumps(dict(source.params), sort_keys=True),
            "Digest of the image": source.image[:12],
            "Digest of the weights": source.weights[:12],
            "Seed": str(plan.seed),
        }

    @property
    def facts(self) -> dict[str, str]:
        """What one wants to know to find these votes again."""
        plan, source = self.votes.plan, self.votes.provenance
        parameters = ", ".join(f"{name} = {json.dumps(value)}" for name, value in source.params.items())
        return {
            "Explained class": f"{source.target_name} ({source.target})",
            "Parameters": parameters or "none",
            "Noise": f"σ = {plan.sigma:g}, n = {plan.n} samples, seed {plan.seed}",
            "Rules": f"{rules_in_words(plan)} ({plan.sign} values, {plan.rule} rule)",
            "Weights": source.weights[:16] or "unknown",
            "Image": source.image[:16],
            "Computed on": f"{source.device}, {source.precision}, {source.batch_size} at once",
            "Versions": ", ".join(f"{library} {version}" for library, version in source.versions.items()),
        }


def rules_in_words(plan: Plan) -> str:
    """The preset that a plan follows, or what it does instead."""
    own = {"sign": plan.sign, "rule": plan.rule, "guess": plan.guess}
    for name, preset in PRESETS.items():
        if own == preset:
            return name
    guess = f", {plan.guess} samples to guess" if plan.guess else ""
    return f"{plan.sign}, {plan.rule}{guess}"
