"""What a run's own numbers say against it: a ruined wave function has a small error bar too.

Statistics (`stats`) tell how well a mean is known; this module tells whether it is the mean of what
was trained.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vmcjob.stats import Estimate, Walkers, standard_error
from vmcjob.verdict.evidence import MAX_SHIFT, MIN_SHIFT, above_best_stretch, against_walkers

CERTAIN = 3.0
"""Standard errors beyond which a difference is one."""
MIN_ENERGY = 1e-3
"""In hartree: differences of energies below are not worth a word."""
MAX_FALL = 1.6e-3
"""In hartree, one kcal/mol: what the last tenth of a training may still gain."""
MAX_VARIANCE_RATIO = 4.0
"""Of the evaluation's variance to the training's lowest; both are medians over steps."""
MIN_TAIL = 10
"""Steps that the end of a training has at least, if that is to be judged."""
MIN_OUTLIER = 8.0
"""In robust standard deviations: what a step must be off to be called an outlier."""
SIGMA_PER_MAD = 1.4826  # of a normal distribution
MIN_SCATTER = 0.1
"""What a series of energies varies by at least, in variances of a step's mean over walkers that are
independent; below, walkers have not got far in all its steps, and its error bar cannot know."""
MAX_AGE = 1000
"""Moves that a walker may refuse in a row: of those that stand for |ψ|², the oldest refuse some
tens. One that stays for longer stands where |ψ| has a peak that it should not have."""

Series = Mapping[str, np.ndarray]


def findings(
    train: Series,
    evaluate: Series,
    energy: Estimate,
    hartree_fock: float | None,
    n_walkers: int | None = None,
    walkers: Walkers | None = None,
) -> tuple[str, ...]:
    """Sentences about what is wrong with an evaluated state; none where nothing is.

    Args:
        train, evaluate: the columns of both series, "energy" in hartree and "variance" among them.
        energy: of the evaluation.
        hartree_fock: an energy that any trained state should be below, hartree.
        n_walkers: behind each step, if that is known.
        walkers: compared with each other over the evaluation; None in earlier releases' runs.
    """
    if not all(np.isfinite(train[name]).all() for name in ("energy", "variance")):
        return ("its training has numbers that are not finite",)
    if min(np.min(series["variance"], initial=0.0) for series in (train, evaluate)) < 0.0:
        return ("it has a variance below zero",)
    found = [*_outliers(evaluate["energy"], energy.error), *_stuck(evaluate, n_walkers)]
    found += [*_old(evaluate), *against_walkers(walkers, energy)]
    if hartree_fock is not None and energy.mean - hartree_fock > CERTAIN * energy.error:
        found.append(f"lies {in_words(energy.mean - hartree_fock)} above Hartree-Fock")
    if (n_train := len(train["energy"])) >= 2 * MIN_TAIL:
        n_tail = max(MIN_TAIL, n_train // 10)
        found += _against_training(train, evaluate, energy, n_tail)
    elif n_train:
        steps = "1 step" if n_train == 1 else f"{n_train} steps"
        found.append(f"its training of {steps} is too short to be judged")
    return (*found, *_scatter(evaluate["variance"], energy.mean))


def _scatter(variance: np.ndarray, energy: float) -> Iterator[str]:
    """Local energies as far from their mean as that is from zero: no state of any use."""
    # A median is at most twice a mean, which is sooner found.
    if 2.0 * float(np.mean(variance)) > energy**2 and (middle := np.median(variance)) > energy**2:
        yield f"its variance, {middle:.3g} hartree² in the median, is more than its energy squared"


def _stuck(evaluate: Series, n_walkers: int | None) -> Iterator[str]:
    """Walkers that hardly move: the mean of the same places again and again."""
    if n_walkers is None or len(evaluate["energy"]) < 2 * MIN_TAIL:
        return
    expected = float(np.mean(evaluate["variance"])) / n_walkers
    found = float(np.var(evaluate["energy"]))
    if 0.0 < found < MIN_SCATTER * expected:  # where nothing changes, statistics say so
        part = 100.0 * (found / expected) ** 0.5
        yield f"its walkers hardly move: energies scatter by {part:.2g} % of what they should"


def _old(evaluate: Series) -> Iterator[str]:
    """A walker that does not leave its place; steps of earlier releases do not tell."""
    age = np.fmax.reduce(evaluate.get("max_age", np.zeros(1)), initial=0.0)
    if age > MAX_AGE:
        yield f"one of its walkers refused {age:.0f} moves in a row"


def _against_training(
    train: Series, evaluate: Series, energy: Estimate, n_tail: int
) -> Iterator[str]:
    rise, error = rise_above_tail(train["energy"][-n_tail:], energy)
    if rise > max(MIN_ENERGY, CERTAIN * error):
        yield f"lies {in_words(rise)} above the end of its training"
    else:
        for rise, first, last in above_best_stretch(train["energy"], evaluate["energy"], energy):
            yield f"lies {in_words(rise)} above steps {first} to {last} of its training"
    ratio = _variance_ratio(train["variance"], evaluate["variance"], n_tail)
    if ratio > MAX_VARIANCE_RATIO:
        yield f"its variance, in the median, is {ratio:.0f} times the lowest of its training"
    fall, error = _fall(train["energy"][-2 * n_tail :], _least_error(2 * n_tail, energy))
    if fall > max(MAX_FALL, CERTAIN * error):
        part = "tenth" if n_tail > MIN_TAIL else f"{n_tail} steps"
        yield f"its training was still falling, by {in_words(fall)} over the last {part}"


def rise_above_tail(tail: np.ndarray, energy: Estimate) -> tuple[float, float]:
    """By how much an evaluated energy lies above the end of its training, and the error."""
    error = max(_least_error(len(tail), energy), standard_error(tail))
    return energy.mean - float(np.mean(tail)), float(np.hypot(energy.error, error))


def _least_error(n: int, energy: Estimate) -> float:
    """The least error of the mean of n training steps: that of n evaluation steps, σ √(2τ/n).

    A few steps do not tell by themselves how correlated they are.
    """
    return energy.error * float(np.sqrt(energy.n / n))


def last_fall(energies: np.ndarray) -> tuple[float, float]:
    """By how much a training fell over its last tenth, and the error; NaN of one too short."""
    n_tail = len(energies) // 10
    return _fall(energies[-2 * n_tail :]) if n_tail >= MIN_TAIL else (np.nan, np.nan)


def is_level(fall: float, error: float) -> bool:
    """Whether a training has surely come to rest: what it may still gain is not worth a word."""
    return fall + CERTAIN * error <= MAX_FALL


class Trend(NamedTuple):
    """How energies change with the step, and the standard error, in hartree per 1000 steps."""

    per_1000: float
    error: float


def trend(energies: np.ndarray) -> Trend | None:
    """The trend of the last fifth of a training; None if that is too short to tell."""
    n = len(energies) // 5
    if n < 2 * MIN_TAIL:
        return None
    fall, error = _fall(energies[-n:])
    return Trend(-fall * 2000.0 / n, error * 2000.0 / n)


def pool_trends(trends: Sequence[Trend | None]) -> Trend | None:
    """The mean of several runs'; None where one has none."""
    known = [one for one in trends if one is not None]
    if len(known) < len(trends):
        return None
    error = float(np.hypot.reduce([one.error for one in known])) / len(known)
    return Trend(float(np.mean([one.per_1000 for one in known])), error)


def _fall(energies: np.ndarray, least: float = 0.0) -> tuple[float, float]:
    """By how much a straight line through energies falls over half of them, and its error.

    With e the error of the mean of what the line leaves, or the least that it can be, that of the
    slope is e √12 / n.
    """
    n = len(energies)
    steps = np.arange(n) - 0.5 * (n - 1)
    # Summed without BLAS: its threads would cost more than they compute.
    slope = float(np.sum(steps * energies) / np.sum(steps * steps))
    error = max(least, standard_error(energies - slope * steps))
    return -0.5 * n * slope, 0.5 * 12**0.5 * error


def _variance_ratio(train: np.ndarray, evaluate: np.ndarray, n_tail: int) -> float:
    """The evaluation's variance divided by the lowest of any tenth of training; 1 if surely small.

    Medians take their time, and are needed by few: a median is at most twice a mean.
    """
    if 2.0 * float(np.mean(evaluate)) <= MAX_VARIANCE_RATIO * float(np.min(train)):
        return 1.0
    blocks = train[len(train) % n_tail :].reshape(-1, n_tail)
    lowest = float(np.min(np.median(blocks, axis=1)))
    return float(np.median(evaluate)) / lowest if lowest > 0.0 else 1.0


def _outliers(energies: np.ndarray, error: float) -> Iterator[str]:
    """A single step that shifts the mean by half an error bar, if that is worth a word."""
    n = len(energies)
    far = n * max(MIN_SHIFT, MAX_SHIFT * error)
    # Most series are narrower than such a shift: no median has to be found for these.
    if n < 2 or np.ptp(energies) <= far:
        return
    away = np.abs(energies - np.median(energies))
    sigma = SIGMA_PER_MAD * float(np.median(away))
    step = int(np.argmax(away))
    if away[step] > MIN_OUTLIER * sigma > 0.0 and away[step] > far:
        yield f"step {step + 1} alone, with {energies[step]:.6g} hartree, carries its mean"


def in_words(energy: float, digits: int = 3) -> str:
    """An energy in mHa, or from 1 hartree on in hartree, with so many digits."""
    if abs(energy) >= 1.0:
        return f"{energy:.{digits}g} hartree"
    mha = 1e3 * energy
    return f"{mha:.0f} mHa" if abs(mha) >= 10.0 ** (digits - 1) else f"{mha:.{digits}g} mHa"
