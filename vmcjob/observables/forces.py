"""Forces on nuclei as an observable; `vmc.forces` has the formulas."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from vmcjob.columns import Axis, Column
from vmcjob.observables.contracts import Quantity, Series, Subject
from vmcjob.observables.fields import control_column
from vmcjob.observables.regression import controlled
from vmcjob.stats import Estimate, estimate, pseudovalues

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Changes, Observed, Sample, Walker

UNITS: Final = "hartree/bohr"
LOCAL, SCORE, PRODUCT, ENERGY, NUCLEI, CONTROLS = COLUMNS = (
    *("force_local", "force_score", "force_score_energy"),
    *("force_energy", "force_nuclei", "force_controls"),
)
N_FIELDS: Final = 7
WARP, GRADIENT = 0, 1
"""Places of the two forms along the axis of forms."""
TO_ZERO_WIDTH: Final = (8.0 / 7.0, -1.0 / 7.0, 0.0)
"""Weights of the scores for the warp: the bias ∝ ε³ of widths ε and 2ε of the zones at nodes is
extrapolated to ε = 0."""
WITHIN_ZONES: Final = (-1.0 / 7.0, 1.0 / 7.0, 0.0)
"""Weights of the scores for the bias at ε."""
BY_GRADIENT: Final = (0.0, 0.0, 1.0)
BY_CHANCE: Final = 2.7e-3
"""Of right runs, the part that may be told so by chance, for each of the two comparisons. This is 3
standard errors of a single normal number, and 3.9 for the largest of 30."""
MIN_FORCE: Final = 1e-3
"""Hartree/bohr: a smaller difference is not worth a word."""
MIN_ERROR: Final = 1e-12
ROUNDING: Final = 1e-8
"""Hartree/bohr: products of single precision without zones differ by as much."""


@dataclass(frozen=True)
class Forces:
    """Forces on all nuclei, by the space warp and by the gradient alone (an `Observable`).

    The means over walkers of all products are recorded, and the estimates combine them: a force has
    a product of means, ⟨E_L⟩ ⟨D log|ψ|⟩.
    """

    n_nuclei: int

    @classmethod
    def of(cls, subject: Subject) -> "Forces":
        """The forces in a system."""
        return cls(subject.n_nuclei)

    @property
    def columns(self) -> Mapping[str, Column]:
        """Arrays by nucleus and axis, and the energy of the same steps."""
        axes = Axis("nucleus", self.n_nuclei), Axis("xyz", 3)
        forms, scores = Axis("force_form", 2), Axis("force_kind", 3)
        return {
            LOCAL: Column(
                UNITS,
                "forces without the part by the change of the wave function: by the warp, by the "
                "gradient alone",
                (*axes, forms),
            ),
            SCORE: Column(
                "1/bohr",
                "change of log|psi| with a nucleus: by the warp without zones at nodes of width e, "
                "2e; as the gradient alone has it",
                (*axes, scores),
            ),
            PRODUCT: Column(UNITS, "the same, times the local energy", (*axes, scores)),
            ENERGY: Column("hartree", "mean local energy of the walkers"),
            NUCLEI: Column("bohr", "positions of the nuclei", axes),
            **control_column("force", axes, N_FIELDS),
        }

    @property
    def n_changes(self) -> int:
        """Changes of the wave function: by each nucleus along each axis."""
        return 3 * self.n_nuclei

    def changes(self, walker: "Walker") -> "Changes":
        """These changes at one walker, with fixed parameters; see `vmc.observing.Responding`."""
        from vmcjob.vmc.forces import changes

        return changes(walker)

    def measure(self, sample: "Sample") -> "Observed":
        """The columns of one walker."""
        from vmcjob.vmc.forces import measure  # where results are read, there may be no JAX

        return dict(zip(COLUMNS, measure(sample), strict=True))

    def estimate(self, series: Series) -> dict[str, Quantity]:
        """Forces by both forms and their difference, and sums and bonds where there are some."""
        given = _Given(series)
        found = {
            "forces": given.quantity("force on nuclei", _warp),
            "forces_gradient": given.quantity(
                "force on nuclei, by the gradient of log|psi| alone", _by_gradient
            ),
            "forces_difference": given.quantity("difference of the two", _difference),
        }
        zones = given.quantity("bias of zones at nodes, which was extrapolated away", _zones)
        if np.max(np.abs(zones.means())) > ROUNDING:  # else there are no nodes
            found["forces_zones"] = zones
        if self.n_nuclei > 1:
            total = given.sum_of_forces()
            words = "sum of the forces on all nuclei, by the gradient alone"
            found["forces_sum"] = Quantity(UNITS, words, (Axis("xyz", 3),), total)
        if self.n_nuclei == 2:
            bond = (given.bond_force(),)
            found["bond_force"] = Quantity(UNITS, "-dE/dR of the bond", (), bond)
        return found


def bond_force(series: Series) -> Estimate | None:
    """−dE/dR of two nuclei in hartree/bohr; None of a series that has no such force."""
    if NUCLEI not in series or len(series[NUCLEI]) == 0 or series[NUCLEI].shape[1] != 2:
        return None
    return _Given(series).bond_force()


def forces_along(series: Series, directions: Sequence[np.ndarray]) -> list[Estimate]:
    """Σ_A direction_A · F_A of each direction (nucleus, xyz), by the warp; hartree/bohr."""
    given = _Given(series)
    return [given.along(direction, _warp) for direction in directions]


def doubts(series: Series) -> Iterator[str]:
    """Sentences about forces that contradict each other; none where they agree."""
    if NUCLEI not in series or not len(series[NUCLEI]):
        return
    given = _Given(series)
    difference = given.quantity("", _difference).estimates
    if words := _farthest(difference):
        yield f"its forces by the warp and by the gradient alone differ by {words}"
    if series[NUCLEI].shape[1] > 1 and (words := _farthest(given.sum_of_forces())):
        yield f"its forces do not add up to zero but to {words}"


def _farthest(found: tuple[Estimate, ...]) -> str:
    """The deviation from zero with the most errors, in words; empty if all may be chance."""
    certain = NormalDist().inv_cdf(1.0 - 0.5 * BY_CHANCE / len(found))
    sure = [
        one
        for one in found
        if abs(one.mean) > max(MIN_FORCE, certain * one.error) and np.isfinite(one.error)
    ]
    if not sure:
        return ""
    worst = max(sure, key=lambda one: abs(one.mean) / max(one.error, MIN_ERROR))
    return f"{1e3 * abs(worst.mean):.3g} mHa/bohr, with an error of {1e3 * worst.error:.2g}"


class Means(NamedTuple):
    """Means of a series, or of a part of it, at one place; the first axis runs over cases."""

    local: np.ndarray  # (case, form), hartree/bohr
    score: np.ndarray  # (case, score), 1/bohr
    product: np.ndarray  # (case, score), hartree/bohr
    energy: np.ndarray  # (case,), hartree

    def pulay(self, *weights: float) -> np.ndarray:
        """−2 ⟨(E_L − E) X⟩ of the scores X with these weights."""
        return -2.0 * ((self.product - self.energy[:, None] * self.score) @ np.array(weights))


def _warp(of: Means) -> np.ndarray:
    return of.local[:, WARP] + of.pulay(*TO_ZERO_WIDTH)


def _by_gradient(of: Means) -> np.ndarray:
    return of.local[:, GRADIENT] + of.pulay(*BY_GRADIENT)


def _difference(of: Means) -> np.ndarray:
    return _warp(of) - _by_gradient(of)


def _zones(of: Means) -> np.ndarray:
    return of.pulay(*WITHIN_ZONES)


class _Given:
    """A series of forces; all forces are linear in local parts, scores and products."""

    def __init__(self, series: Series) -> None:
        arrays = (np.asarray(series[name], np.float64) for name in COLUMNS)
        self.local, self.score, self.product, self.energy, nuclei, self.controls = arrays
        self.nuclei = nuclei[0]

    def quantity(self, words: str, force: Callable[[Means], np.ndarray]) -> Quantity:
        """A force on each nucleus along each axis."""
        axes = Axis("nucleus", len(self.nuclei)), Axis("xyz", 3)
        units = np.eye(3 * len(self.nuclei)).reshape(-1, *self.nuclei.shape)
        return Quantity(UNITS, words, axes, tuple(self.along(one, force) for one in units))

    def sum_of_forces(self) -> tuple[Estimate, ...]:
        """Σ_A F_A along each axis. By the warp it is zero at each walker, and says nothing."""
        every = np.ones(len(self.nuclei))
        return tuple(self.along(np.outer(every, one), _by_gradient) for one in np.eye(3))

    def bond_force(self) -> Estimate:
        """−dE/dR of two nuclei."""
        apart = self.nuclei[1] - self.nuclei[0]
        bond = 0.5 * apart / np.linalg.norm(apart)
        return self.along(np.stack([-bond, bond]), _warp)

    def along(self, direction: np.ndarray, force: Callable[[Means], np.ndarray]) -> Estimate:
        """Σ_A direction_A · F_A, direction (nucleus, xyz), with control variates if they help.

        The controls go along the direction as well: first their sum over nuclei, then each by
        itself, as a field need not act on all elements alike.
        """
        parts = (self.local, self.score, self.product)
        means = (np.tensordot(one, direction, ((1, 2), (0, 1))) for one in parts)
        series = pseudovalues(lambda *means: force(Means(*means)), *means, self.energy)
        moving = np.any(direction, axis=1)
        by_nucleus = np.einsum("naxf,ax->naf", self.controls[:, moving], direction[moving])
        sets = [by_nucleus.sum(axis=1)]
        if np.sum(moving) > 1:
            sets.append(by_nucleus.reshape(len(series), -1))
        return estimate(controlled(series, *sets))
