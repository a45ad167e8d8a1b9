"""The common mean of independent estimates."""

import math
from collections.abc import Sequence

import numpy as np

from vmcjob.stats.correlation import student_factor
from vmcjob.stats.mean import MAX_DEVIATION, Estimate

# Largest ratio of the errors of two runs of one job at equal length: errors are only estimates.
MAX_UNLIKE = 2.0
DISAGREE = "runs disagree beyond their errors"
"""Why a mean of several runs is not known."""
# Smaller means are rounded like this one.
SMALLEST_MEAN = 1e-30


def pool(estimates: Sequence[Estimate], negligible: float = 0.0) -> Estimate:
    """The common mean of independent estimates; its error includes the scatter between them.

    Runs may differ by more than their errors, because each ended at its own optimum. Then the
    number of runs counts, not the number of samples (random effects, DerSimonian and Laird 1986):

        χ² = Σ (mᵢ - m)²/eᵢ²,  m = Σ mᵢ/eᵢ² / Σ 1/eᵢ²
        s² = max(0, (χ² - (k - 1)) / (Σw - Σw²/Σw)),  w = 1/eᵢ²
        m  = Σ wᵢ* mᵢ / Σ wᵢ*,  wᵢ* = 1/(q/nᵢ + s²)      error² = Σ wᵢ*² (eᵢ² + s²) / (Σ wᵢ*)²

    The error is widened by Student's factor, in proportion to the part that comes from the scatter
    of the k runs. Weights follow the lengths nᵢ: runs that are alike have the same q
    (`_squares_by_length`). Weights 1/eᵢ² would favour runs whose estimated errors are small by
    chance.

    Every estimate needs a finite mean and error. The result is not converged if one of the
    estimates is not, or if they differ too much, by more than `negligible`.
    """
    if len(estimates) == 1:
        return estimates[0]
    mean = np.array([item.mean for item in estimates])
    error = np.array([item.error for item in estimates])
    if not (np.isfinite(mean).all() and np.isfinite(error).all() and mean.size):
        raise ValueError("pooling needs estimates, each with a finite mean and error")
    # A constant series has an error of zero, but its numbers are rounded. SMALLEST_MEAN keeps the
    # square of the rounding above zero if the mean is zero too.
    rounding = np.spacing(np.maximum(np.abs(mean), SMALLEST_MEAN))
    square = np.maximum(error, rounding) ** 2
    chi2, between = scatter(mean, square)
    lengths = np.array([item.n for item in estimates])
    weight = 1.0 / (_squares_by_length(square, lengths) + between)
    weight /= weight.sum()
    total = float((weight**2 * (square + between)).sum())
    from_scatter = between * float((weight**2).sum())
    dof = len(estimates) - 1
    factor = student_factor(dof * (total / from_scatter) ** 2) if from_scatter > 0.0 else 1.0
    n = int(lengths.sum())
    n_eff = sum(item.n_eff for item in estimates)
    doubts = _doubts(estimates)
    if _deviation_of_chi2(chi2, dof) > MAX_DEVIATION and np.ptp(mean) > negligible:
        doubts.append(f"{DISAGREE} (χ²/{dof} = {chi2 / dof:.1f})")
    return Estimate(
        mean=float((weight * mean).sum()),
        error=math.sqrt(total) * factor,
        tau=n / (2.0 * n_eff),
        n_eff=n_eff,
        n=n,
        converged=not doubts,
        why="; ".join(doubts),
    )


def _squares_by_length(square: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Squared errors that depend on the length alone, for runs that are alike.

    The squared error per step is averaged over these runs, so that no weight depends on a run's own
    chance. A run that is much noisier than most keeps its own error.
    """
    per_step = square * lengths
    typical = np.sort(per_step)[(per_step.size - 1) // 2]
    is_alike = per_step <= MAX_UNLIKE**2 * typical
    return np.where(is_alike, per_step[is_alike].mean(), per_step) / lengths


def _doubts(estimates: Sequence[Estimate]) -> list[str]:
    """Why estimates cannot be trusted: each kind of reason once, from the worst run."""
    kinds: dict[str, list[Estimate]] = {}
    for item in estimates:
        if not item.converged:
            kinds.setdefault(item.why.partition(":")[0], []).append(item)
    return [
        f"{len(items)} of {len(estimates)} runs: {min(items, key=lambda item: item.n_eff).why}"
        for items in kinds.values()
    ]


def scatter(mean: np.ndarray, square: np.ndarray) -> tuple[float, float]:
    """χ² of the means about their weighted mean, and the variance between runs that follows."""
    weight = 1.0 / square
    common = (weight * mean).sum() / weight.sum()
    chi2 = float((weight * (mean - common) ** 2).sum())
    scale = weight.sum() - (weight**2).sum() / weight.sum()
    return chi2, max(0.0, float((chi2 - (mean.size - 1)) / scale))


def _deviation_of_chi2(chi2: float, dof: int) -> float:
    """Deviation of χ² from its expectation, in standard deviations (Wilson and Hilferty 1931)."""
    spread = 2.0 / (9.0 * dof)
    return ((chi2 / dof) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
