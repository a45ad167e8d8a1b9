"""Fields of a row of the table that are pooled over all its runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vmcjob.results.evaluation import Evaluated
from vmcjob.stats import pool
from vmcjob.verdict.extrapolation import pool_extrapolations, pool_left
from vmcjob.verdict.findings import pool_trends
from vmcjob.verdict.spin import pool_spins


def of_training(group: Sequence[Evaluated]) -> dict[str, Any]:
    """The fields of a row that say what longer training would bring."""
    lines = [item.extrapolation for item in group]
    extrapolated, left = pool_extrapolations(lines), pool_left(lines)
    slope = pool_trends([item.judgement.trend for item in group])
    return {
        "extrapolated": extrapolated.energy,
        "extrapolated_error": extrapolated.error,
        "not_extrapolated": extrapolated.why,
        "left": left and left[0],
        "left_error": left and left[1],
        "training_slope": slope and slope.per_1000,
        "training_slope_error": slope and slope.error,
    }


def of_spin(group: Sequence[Evaluated]) -> dict[str, Any]:
    """The fields of a row about its total spin."""
    spin = pool_spins([item.judgement.spin for item in group])
    return {"s2": spin.square, "s2_error": spin.error, "s2_expected": spin.expected}


def of_force(group: Sequence[Evaluated]) -> dict[str, Any]:
    """The fields of a row about the force along its bond."""
    known = [item.bond_force for item in group if item.bond_force is not None]
    if len(known) < len(group) or not all(np.isfinite([x.mean, x.error]).all() for x in known):
        return {"bond_force": None, "bond_force_error": None}
    found = pool(known)
    return {"bond_force": found.mean, "bond_force_error": found.error}
