"""From the rows of a store to the digits of a table: every number on the way, in its order.

Nothing is computed anew but what `stats` itself goes by; the last number is that of the table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vmcjob.stats import (
    MIN_INDEPENDENT,
    Estimate,
    candidate_errors,
    estimate,
    pool,
    scatter,
    student_factor,
)
from vmcjob.store import RunStore
from vmcjob.verdict.evidence import MIN_SHIFT

Facts = Mapping[str, float | int | str | None]
"""Numbers by name; the names say the unit where it is not hartree."""


@dataclass(frozen=True)
class RunTrace:
    """How the energy of one run came about; energies in hartree."""

    run_id: str
    rows: Facts  # what was read
    errors: Mapping[
        str, Mapping[str, float]
    ]  # by method: the error, the factor that widens it, and the result
    chosen: str  # the method whose result is the error: the largest
    estimate: Estimate


@dataclass(frozen=True)
class RowTrace:
    """How a row of a table came about."""

    name: str
    runs: tuple[RunTrace, ...]
    pooling: Facts  # empty for a single run
    estimate: Estimate
    verdict: str  # of the table
    why: str  # what is against it or not known, else empty


def trace_row(name: str, stores: Mapping[str, Path], verdict: str = "", why: str = "") -> RowTrace:
    """Trace the energy of a row of a table; StoreError if a store cannot be read.

    Args:
        name: of the row.
        stores: of its runs, by their ids.
        verdict: the table's.
        why: that does not call it converged.
    """
    runs = tuple(trace_run(run_id, path) for run_id, path in stores.items())
    estimates = [run.estimate for run in runs]
    pooled = pool(estimates, negligible=MIN_SHIFT)
    why = why or pooled.why
    verdict = verdict or ("not yet" if why else "converged")
    return RowTrace(name, runs, _pooling(estimates), pooled, verdict, why)


def trace_run(run_id: str, path: Path) -> RunTrace:
    """Trace the energy of one run's evaluation."""
    store = RunStore.open(path, run_id=run_id)
    series = store.series("evaluate")
    energies = series["energy"]
    found = estimate(energies, variance=series["variance"])
    has_spread = 0.0 < found.error < math.inf and np.ptp(energies) > 0.0  # stuck walkers have none
    errors = _errors(energies) if has_spread else {}
    return RunTrace(
        run_id=run_id,
        rows=_rows(store, series),
        errors=errors,
        chosen=max(errors, key=lambda name: errors[name]["result"], default="none"),
        estimate=found,
    )


def _rows(store: RunStore, series: Mapping[str, np.ndarray]) -> Facts:
    """What was read, and what the run says of it."""
    energies, steps = series["energy"], series["step"]
    evaluated: Any = store.attrs.get("evaluated") or {}  # JSON
    return {
        "array": f"{store.path.name}/evaluate/energy",
        "first step": int(steps[0]) if len(steps) else None,
        "last step": int(steps[-1]) if len(steps) else None,
        "rows": len(energies),
        "rows not finite": int((~np.isfinite(energies)).sum()),
        "parameters": evaluated.get("chosen", "last") if isinstance(evaluated, dict) else None,
        "mean": float(np.mean(energies)) if len(energies) else None,
        "spread of rows": float(np.std(energies, ddof=1)) if len(energies) > 1 else None,
        "mean variance, hartree^2": float(np.mean(series["variance"])) if len(steps) else None,
        **_weinstein(series),
    }


def _weinstein(series: Mapping[str, np.ndarray]) -> Facts:
    """The bracket within which there is an eigenvalue, of whatever symmetry.

    With σ² the variance of the local energy, one lies between E − σ and E + σ (Weinstein 1934).
    """
    if not len(series["energy"]) or (variance := float(np.mean(series["variance"]))) < 0.0:
        return {}
    energy, sigma = float(np.mean(series["energy"])), math.sqrt(variance)
    return {"an eigenvalue is above": energy - sigma, "and below": energy + sigma}


def _errors(x: np.ndarray) -> dict[str, dict[str, float]]:
    """The candidates for the error of a mean, as `stats.estimate` weighs them."""
    return {
        name: {
            "error": math.sqrt(square[0]),
            "degrees of freedom": float(dof[0]),
            **({"blocks": int(dof[0]) + 1} if name == "blocking" else {}),
            "Student's factor": float(student_factor(dof)[0]),
            "result": float((student_factor(dof) * np.sqrt(square))[0]),
        }
        for name, (square, dof) in candidate_errors(x[None]).items()
    }


def _pooling(estimates: Sequence[Estimate]) -> Facts:
    """Agreement and scatter of several runs."""
    if len(estimates) < 2:
        return {}
    mean = np.array([one.mean for one in estimates])
    error = np.array([one.error for one in estimates])
    chi2, between = scatter(mean, np.maximum(error, np.spacing(np.abs(mean))) ** 2)
    return {
        "runs": len(estimates),
        "lowest": float(mean.min()),
        "highest": float(mean.max()),
        "chi^2": chi2,
        "degrees of freedom": len(estimates) - 1,
        "spread between runs": math.sqrt(between),
    }


def meaning(found: Estimate) -> Facts:
    """What an estimate says, and whether its statistics are sound; the state is not judged here."""
    return {
        "energy": found.mean,
        "error": found.error,
        "rows": found.n,
        "tau, steps": found.tau,
        "n_eff = rows / (2 tau)": found.n_eff,
        "n_eff needed": MIN_INDEPENDENT,
        "statistics": "sound" if found.converged else f"not sound: {found.why}",
    }
