"""Potential-energy curves: the minimum of energies along a coordinate, and quantities from it.

Near its minimum a curve is a polynomial in z = (R − R₀) / (R + R₀), which is finite from R = 0 to
infinity (Ogilvie, Proc. R. Soc. A 378, 287 (1981)). R₀ is the lowest point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from vmcjob.results.units import PER_HARTREE

ELECTRON_MASSES_PER_DALTON = 1822.888486  # CODATA 2018

N_BOOTSTRAP = 400
MIN_POINTS = 4
"""Fewest points of a fit: a parabola has three coefficients, and one more point tests the fit."""
ENOUGH_POINTS = 6
"""Points to fit, if there are so many: a well needs a term or two beyond the parabola."""
MIN_DEGREE = 3
"""Smallest degree of the polynomial, if there are enough points to test it."""
MAX_DEGREE = 8
MIN_FOUND = 0.9
"""Fraction of bootstrap replicates that must have a minimum."""
DEPTH = 0.6
"""Points are in the well below this fraction of the height of the curve's right end."""

Points = Float[np.ndarray, " point"]


def reduced_mass(charges: tuple[int, int]) -> float:
    """Reduced mass of two atoms in dalton, each of the most abundant isotope of its element."""
    from pyscf.data.elements import COMMON_ISOTOPE_MASSES

    first, second = (float(COMMON_ISOTOPE_MASSES[charge]) for charge in charges)
    return first * second / (first + second)


class NoMinimumError(Exception):
    """The points have no minimum that can be fitted; the message says why."""


@dataclass(frozen=True)
class Value:
    """A number and its standard error; the field's name gives the unit."""

    value: float
    error: float


@dataclass(frozen=True)
class Fit:
    """A fitted curve near its minimum, and the minimum with bootstrap errors."""

    centre: float  # R₀, bohr
    coefficients: Float[np.ndarray, " degree+1"]  # of powers of z, hartree, lowest first
    first: float  # first and last fitted point, bohr
    last: float
    n_points: int
    chi_squared: float  # per degree of freedom
    minimum: Value  # bohr
    energy: Value  # hartree, at the minimum
    force_constant: Value  # hartree / bohr²

    def __call__(self, distance: Points) -> Points:
        """The fitted energy in hartree, at distances in bohr."""
        polynomial = np.polynomial.Polynomial(self.coefficients)
        return polynomial(_coordinate(np.asarray(distance), self.centre))

    def frequency(self, reduced_mass: float) -> Value:
        """The harmonic wavenumber √(k/μ) / 2πc in cm⁻¹, for a reduced mass in dalton."""
        mass = reduced_mass * ELECTRON_MASSES_PER_DALTON
        omega = math.sqrt(self.force_constant.value / mass) * PER_HARTREE["cm-1"]
        return Value(omega, 0.5 * omega * self.force_constant.error / self.force_constant.value)

    def depth(self, limit: Value) -> Value:
        """The dissociation energy D_e in hartree, to fragments with the energy `limit`."""
        return Value(limit.value - self.energy.value, math.hypot(limit.error, self.energy.error))


def fit(
    distance: Sequence[float] | Points,
    energy: Sequence[float] | Points,
    error: Sequence[float] | Points,
    seed: int = 0,
) -> Fit:
    """The minimum of a curve.

    The degree is the one with the smallest χ² + 2 p for p coefficients (Akaike 1974, for known
    errors). A bootstrap replicate is the fitted curve plus noise as large as the points' errors.
    Each replicate chooses its degree again, so the errors of the minimum include this choice. If
    the best polynomial misses the points by more than their errors, the noise is increased in
    proportion. The first omitted term may still be missing: the change of the minimum by this term
    is added in quadrature.

    Args:
        distance: bohr, in any order, none twice.
        energy: hartree.
        error: standard errors, hartree, above 0.
        seed: of the bootstrap.

    Raises NoMinimumError if the lowest point is an end of the curve, or points are too few.
    """
    order = np.argsort(distance)
    x, y, e = (np.asarray(part, np.float64)[order] for part in (distance, energy, error))
    kept = _near_minimum(x, y)
    x, y, e = x[kept], y[kept], e[kept]
    centre = float(x[np.argmin(y)])
    z = _coordinate(x, centre)
    ((coefficients, chi_squared),) = _best(z, y[:, None], e)
    minimum = _minimum(coefficients, z, centre)
    if minimum is None:
        raise NoMinimumError("the curve that fits the points best has no minimum between them")
    e = e * math.sqrt(max(1.0, chi_squared))
    noise = e[:, None] * np.random.default_rng(seed).standard_normal((e.size, N_BOOTSTRAP))
    curves = np.polynomial.Polynomial(coefficients)(z)[:, None] + noise
    replicates = [_minimum(again, z, centre) for again, _ in _best(z, curves, e)]
    found = [replicate for replicate in replicates if replicate is not None]
    if len(found) < MIN_FOUND * N_BOOTSTRAP:
        raise NoMinimumError("the error bars are too large to tell where the minimum is")
    left_out = _left_out(z, y, e, centre, coefficients.size - 1)
    errors = np.hypot(_spread(found), left_out)
    values = [Value(float(a), float(b)) for a, b in zip(minimum, errors, strict=True)]
    return Fit(centre, coefficients, x[0], x[-1], x.size, chi_squared, *values)


def _near_minimum(x: Points, y: Points) -> np.ndarray:
    """Indices of the points to fit: those in the well, and neighbours if these are too few."""
    if x.size < MIN_POINTS:
        raise NoMinimumError(f"{x.size} points; a fit takes at least {MIN_POINTS}")
    lowest = int(np.argmin(y))
    if lowest in (0, x.size - 1):
        side = "shorter" if lowest == 0 else "longer"
        raise NoMinimumError(f"the lowest energy is at its end; add {side} distances")
    is_in = y <= y[lowest] + DEPTH * (y[-1] - y[lowest])
    first = last = lowest
    while first > 0 and is_in[first - 1]:
        first -= 1
    while last < x.size - 1 and is_in[last + 1]:
        last += 1
    while last - first + 1 < min(ENOUGH_POINTS, x.size) or first == lowest or last == lowest:
        take_left = last == x.size - 1 or (first > 0 and y[first - 1] < y[last + 1])
        first, last = (first - 1, last) if take_left else (first, last + 1)
    return np.arange(first, last + 1)


def _coordinate(x: Points, centre: float) -> Points:
    return (x - centre) / (x + centre)


def _best(
    z: Points, y: Float[np.ndarray, "point curve"], e: Points
) -> list[tuple[np.ndarray, float]]:
    """For each curve, coefficients of the degree with the smallest χ² + 2 p, and χ² / (n - p)."""
    fits = []
    highest = min(MAX_DEGREE, z.size - 2)
    for degree in range(min(MIN_DEGREE, highest), highest + 1):
        solved, chi_squared = _polynomials(z, y, e, degree)
        fits.append((chi_squared + 2.0 * (degree + 1), chi_squared / (z.size - degree - 1), solved))
    chosen = np.argmin([score for score, _, _ in fits], axis=0)
    return [(fits[at][2][:, k], float(fits[at][1][k])) for k, at in enumerate(chosen)]


def _polynomials(
    z: Points, y: Float[np.ndarray, "point curve"], e: Points, degree: int
) -> tuple[Float[np.ndarray, "degree+1 curve"], Float[np.ndarray, " curve"]]:
    """For each curve, coefficients of one degree, and χ²."""
    basis = np.vander(z, degree + 1, increasing=True) / e[:, None]
    solved, *_ = np.linalg.lstsq(basis, y / e[:, None], rcond=None)
    return solved, ((basis @ solved - y / e[:, None]) ** 2).sum(axis=0)


def _left_out(z: Points, y: Points, e: Points, centre: float, degree: int) -> np.ndarray:
    """Changes of distance, energy and force constant by the first term beyond a degree."""
    fewer, more = (_polynomials(z, y[:, None], e, n)[0][:, 0] for n in (degree, degree + 1))
    one, other = _minimum(fewer, z, centre), _minimum(more, z, centre)
    if one is None or other is None:
        raise NoMinimumError("the points are too few, for their error bars, to tell where it is")
    return np.abs(np.subtract(one, other))


def _spread(found: Sequence[Any]) -> np.ndarray:
    """Half the width that contains 68.27 %; robust against outliers of high degrees."""
    low, high = np.quantile(found, [0.15865, 0.84135], axis=0)
    return 0.5 * (high - low)


def _minimum(
    coefficients: np.ndarray, z: Points, centre: float
) -> tuple[float, float, float] | None:
    """Distance, energy and force constant of the lowest minimum inside; None without one."""
    polynomial = np.polynomial.Polynomial(coefficients)
    curvature = polynomial.deriv(2)
    roots = polynomial.deriv().roots()
    inside = [at for at in roots[roots.imag == 0.0].real if z[0] <= at <= z[-1]]
    minima = [(float(polynomial(at)), float(at)) for at in inside if curvature(at) > 0.0]
    if not minima:
        return None
    energy, at = min(minima)
    distance = centre * (1.0 + at) / (1.0 - at)
    slope = 2.0 * centre / (distance + centre) ** 2  # dz/dR
    return distance, energy, float(curvature(at)) * slope**2
