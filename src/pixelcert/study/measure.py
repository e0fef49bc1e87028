"""Measures: every metric of one job, at each τ and level that the study asks for. Cheap beside the sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from ..certificate import ABSTAIN, Certificate
from ..errors import InfeasibleError
from ..explainer import explain
from ..methods import Method
from ..metrics import (
    certified_grid_pg,
    certified_interval,
    certified_order,
    deletion_curve,
    deletion_masks,
    grid_pg,
    order_masks,
    shares,
)
from ..noise import snap
from ..votes import Votes
from .scene import Scene
from .settings import Settings

ORDER_PERCENTS = (1, 2, 5, 10, 20, 50)  # of the pixels, deleted in the order of the certified maps

Row = dict[str, Any]


def measure(votes: Votes, settings: Settings, explainer: Method, image: Tensor, scene: Scene) -> dict[str, Any]:
    """Rows of metric, τ, level, value and, where there is one, the certified interval around it."""
    rows = [_row("mean_radius", None, level, _mean_radius(votes, settings, level)) for level in votes.plan.levels]
    if scene.kind == "grid":
        rows.append(_row("grid_pg", None, None, _grid_pg(explainer, image, votes, scene)))
    for tau in settings.tau:
        certificate = _certify(votes, settings, tau)
        rows += _shares(votes, certificate, tau)
        if scene.kind == "grid":
            rows += _localisation(votes, certificate, tau, scene)
        elif certificate is not None and tau in settings.deletion_taus:
            rows += _deletion(certificate, explainer, image, tau)
    return {
        "target": votes.provenance.target,
        "target_name": votes.provenance.target_name,
        "radius": {str(tau): votes.radius_at(tau) for tau in settings.tau},
        "rows": rows,
    }


def _row(metric: str, tau: float | None, level: float | None, value: float, *interval: float) -> Row:
    """Undefined numbers are None: JSON knows no NaN."""
    numbers = dict(zip(("value", "low", "high"), (value, *(interval or (math.nan, math.nan))), strict=True))
    defined = {name: None if math.isnan(number) else float(number) for name, number in numbers.items()}
    return {"metric": metric, "tau": tau, "level": level, **defined}


def _certify(votes: Votes, settings: Settings, tau: float) -> Certificate | None:
    """The certificate at τ; None where not even unanimous votes could certify a pixel."""
    try:
        return votes.certify(tau, settings.alpha, correction=settings.correction_of(votes.plan))
    except InfeasibleError:
        return None


def _labels(votes: Votes, certificate: Certificate | None, level: float) -> np.ndarray[Any, np.dtype[np.int8]]:
    return np.full(votes.size, ABSTAIN, np.int8) if certificate is None else certificate.labels[level]


def _shares(votes: Votes, certificate: Certificate | None, tau: float) -> list[Row]:
    rows = []
    for level in votes.plan.levels:
        ones, zeros, abstained = shares(_labels(votes, certificate, level))
        rows += [
            _row("certified", tau, level, 100 - abstained),
            _row("certified_1", tau, level, ones),
            _row("certified_0", tau, level, zeros),
            _row("abstained", tau, level, abstained),
        ]
    if certificate is not None and certificate.prediction is not None:
        rows.append(_row("prediction_certified", tau, None, float(certificate.prediction.certified)))
    return rows


def _mean_radius(votes: Votes, settings: Settings, level: float) -> float:
    return float(votes.radius_map(level, settings.alpha).mean())


def _grid_pg(explainer: Method, image: Tensor, votes: Votes, scene: Scene) -> float:
    """Of the explanation without noise, as people look at it; the votes know nothing of it."""
    clean = snap(image.to(explainer.model.device))
    attribution = explain(explainer, clean[None], votes.provenance.target).maps[0]
    if not bool(attribution.isfinite().all()):
        return math.nan
    return grid_pg(attribution.cpu().numpy(), scene.side, scene.cell)


def _localisation(votes: Votes, certificate: Certificate | None, tau: float, scene: Scene) -> list[Row]:
    rows = []
    for level in votes.plan.levels:
        labels = _labels(votes, certificate, level)
        value = certified_grid_pg(labels, scene.side, scene.cell)
        rows.append(_row("certified_grid_pg", tau, level, value, *certified_interval(labels, scene.side, scene.cell)))
    return rows


def _deletion(certificate: Certificate, explainer: Method, image: Tensor, tau: float) -> list[Row]:
    """Confidence while certified pixels are deleted: level by level, and in the certified maps' own order."""
    target, size = certificate.votes.provenance.target, certificate.votes.size
    ordered = order_masks(certified_order(certificate), size, ORDER_PERCENTS)
    by_level = deletion_curve(explainer.model, image, target, deletion_masks(certificate.labels))
    by_order = deletion_curve(explainer.model, image, target, ordered)
    rows = [_row("confidence", tau, None, by_level.confidence[0])]
    for level, deleted, confidence in zip(sorted(certificate.levels), *(c[1:] for c in by_level), strict=True):
        rows += [_row("deleted", tau, level, deleted), _row("deletion_confidence", tau, level, confidence)]
    for percent, confidence in zip(ORDER_PERCENTS, by_order.confidence[1:], strict=True):
        rows.append(_row("order_deletion_confidence", tau, percent, confidence))
    rows.append(_row("deletion_area", tau, None, by_level.area))
    rows.append(_row("order_deletion_area", tau, None, by_order.area))
    return rows
