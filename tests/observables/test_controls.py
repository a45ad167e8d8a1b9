"""Control variates: their formulas, and what they do to means and error bars."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.matrix import rest
from vmcjob import fwdlap
from vmcjob.columns import Column
from vmcjob.observables import Dipole, SquaredRadius, columns_of, estimate_all
from vmcjob.observables.fields import Geometry
from vmcjob.observables.regression import MAX_RATIO, controlled
from vmcjob.stats import estimate
from vmcjob.vmc.contracts import Nuclei

NUCLEI = Nuclei(jnp.array([[0.0, 0.0, 0.0], [0.3, -0.2, 1.5]]), jnp.array([3.0, 1.0]))


def log_psi(r: Array) -> Array:
    """Nothing symmetric, so that no mistake can cancel."""
    return -jnp.sum(jnp.arange(1.0, 1.0 + r.size) * 0.1 * jnp.sin(r.ravel()) * jnp.sum(r**2))


def geometry(r: Array) -> Geometry:
    """Of one walker where that wave function is."""
    jet = fwdlap.Jet(log_psi(r), jax.grad(log_psi)(r), jnp.zeros(()))
    local = SimpleNamespace(jet=jet)
    return Geometry(SimpleNamespace(r=r, nuclei=NUCLEI, local=local))  # pyright: ignore[reportArgumentType] -- all of a Sample that is read


def distances(r: Array) -> tuple[Array, Array]:
    """Of electrons from nuclei, as vectors and as numbers."""
    x = r[:, None] - NUCLEI.positions
    return x, jnp.linalg.norm(x, axis=-1)


def along_axis(axis: int):
    """The fields of a dipole moment along one axis, in order."""
    e = jnp.eye(3)[axis]
    yield lambda r: jnp.tile(e, (len(r), 1))
    for w in (jnp.ones(2), NUCLEI.charges):
        yield lambda r, w=w: (distances(r)[1] @ w)[:, None] * e
        yield lambda r, w=w: sum(
            w[k]
            * distances(r)[0][:, k]
            * (distances(r)[0][:, k, axis] / distances(r)[1][:, k])[:, None]
            for k in range(2)
        )


def towards_nuclei(w: Array):
    """Unit vectors from the nuclei, added up."""
    return lambda r: jnp.einsum("iIa,iI,I->ia", distances(r)[0], 1.0 / distances(r)[1], w)


def between(r: Array) -> Array:
    """Unit vectors from all other electrons, added up."""
    found = []
    for i in range(len(r)):
        apart = r[i] - jnp.delete(r, i, axis=0, assume_unique_indices=True)
        found.append((apart / jnp.linalg.norm(apart, axis=-1, keepdims=True)).sum(axis=0))
    return jnp.stack(found)


SCALING = [
    lambda r: r,
    lambda r: r * jnp.linalg.norm(r, axis=-1, keepdims=True),
    lambda r: jnp.einsum("iIa,iI->ia", *distances(r)),
    towards_nuclei(jnp.ones(2)),
]
SINGULAR = [towards_nuclei(jnp.ones(2)), towards_nuclei(NUCLEI.charges), lambda r: r, between]


@partial(jax.jit, static_argnums=0)
def expected(field, r: Array) -> Array:
    """∇·f + 2 f·∇log|ψ| from the whole Jacobian of a field."""
    divergence = jnp.trace(jax.jacfwd(field)(r).reshape(r.size, r.size))
    return divergence + 2.0 * jnp.sum(field(r) * jax.grad(log_psi)(r))


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_electrons", [3, *rest(1)])
def test_controls_are_what_their_fields_say(n_electrons: int) -> None:
    """A forgotten factor of a divergence would leave a control with a mean, and so a bias."""
    r = jax.random.normal(jax.random.key(1), (n_electrons, 3)) + 0.2
    found = geometry(r)
    for axis in range(3):
        exact = [expected(field, r) for field in along_axis(axis)]
        np.testing.assert_allclose(found.along_axes()[axis], exact, rtol=1e-9)
    np.testing.assert_allclose(found.scaling(), [expected(f, r) for f in SCALING], rtol=1e-9)
    pairs = SINGULAR if n_electrons > 1 else SINGULAR[:-1]
    exact = [expected(field, r) for field in pairs]
    np.testing.assert_allclose(found.singular()[: len(exact)], exact, rtol=1e-9)


def ar1(rng: np.random.Generator, n_chains: int, n: int, phi: float) -> np.ndarray:
    """Chains of unit variance, (chain, step)."""
    x = rng.normal(size=(n_chains, n))
    for i in range(1, n):
        x[:, i] = phi * x[:, i - 1] + np.sqrt(1.0 - phi**2) * x[:, i]
    return x


@pytest.mark.parametrize("n", [300, 1000])
def test_error_bars_with_controls_cover_as_they_should(n: int) -> None:
    """x = 5 + 3 a + b, AR(1) with different memories; a and a stranger are known to have mean 0.

    Without a, the spread is √10 and the memory that of a; what is left is b, of spread 1. Of 300
    chains, two thirds should hold the mean, 60 to 75 %, within chance 8 %; so short a series is
    where coefficients from the numbers that they multiply would show.
    """
    rng = np.random.default_rng(n)
    a, b, stranger = (ar1(rng, 300, n, phi) for phi in (0.8, 0.5, 0.8))
    x = 5.0 + 3.0 * a + b
    found = [
        estimate(controlled(one, np.stack(z, axis=-1)))
        for one, z in zip(x, zip(a, stranger, strict=True), strict=True)
    ]
    plain = [estimate(one) for one in x]
    hits = np.mean([abs(one.mean - 5.0) < one.error for one in found])
    assert 0.60 <= hits <= 0.75
    exact = np.sqrt(1.5 / 0.5 / n)
    assert np.median([one.error for one in found]) == pytest.approx(exact, rel=0.15)
    assert np.median([one.error for one in plain]) > 5.0 * exact


def test_controls_that_do_not_help_are_left_alone() -> None:
    """Strangers, constants and numbers that are not finite: the series is the one that it was."""
    rng = np.random.default_rng(0)
    x, z = ar1(rng, 2, 1000, 0.5)
    for controls in (z, np.zeros(1000), np.full(1000, np.nan)):
        np.testing.assert_array_equal(controlled(x, controls[:, None]), x)
    np.testing.assert_array_equal(controlled(x[:50], x[:50, None]), x[:50])
    assert MAX_RATIO <= 0.8


def test_a_later_set_of_controls_has_to_be_better_than_the_earlier_one() -> None:
    """A sum of controls does not explain their difference; strangers do not replace a good set."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    x = z[:, 0] - z[:, 1] + 0.1 * rng.normal(size=400)
    total, strangers = z.sum(axis=1, keepdims=True), rng.normal(size=(400, 20))
    np.testing.assert_array_equal(controlled(x, total), x)
    found = controlled(x, total, z)
    assert np.std(found) < 0.2
    np.testing.assert_array_equal(controlled(x, total, z, strangers), found)


def test_results_with_controls_stand_beside_the_plain_ones() -> None:
    """Where they are better, element by element; stores without controls are read as before."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 3, 5))
    series = {"dipole": np.array([0.0, 0.0, 2.0]) + rng.normal(size=(400, 3)), "dipole_controls": z}
    columns = columns_of(["dipole"])
    assert "dipole_controlled" not in estimate_all(columns, series)
    series["dipole"][:, 2] += 4.0 * z[:, 2, 1]
    found = estimate_all(columns, series)
    plain, better = found["dipole"], found["dipole_controlled"]
    assert better.estimates[:2] == plain.estimates[:2]
    assert better.errors()[2] < 0.4 * plain.errors()[2]
    assert found["dipole_length_controlled"].means() == pytest.approx(2.0, abs=0.2)
    assert "dipole_controls" not in found
    old = {"dipole": Dipole.columns["dipole"]}
    before = estimate_all(old, {"dipole": series["dipole"]})
    assert before.keys() == {"dipole", "dipole_length"}
    assert before["dipole"] == plain


def test_a_radius_that_its_controls_explain_has_no_error_left() -> None:
    """As that of the hydrogen atom in its ground state."""
    z = np.random.default_rng(0).normal(size=(400, 4))
    found = SquaredRadius().estimate({"r2": 3.0 + z @ [0.1, 2.0, 0.0, 1.0], "r2_controls": z})
    assert found["r2_controlled"].means() == pytest.approx(3.0, abs=1e-9)
    assert isinstance(SquaredRadius.columns["r2_controls"], Column)


@pytest.mark.parametrize(("n", "phi"), [(100, 0.9), (200, 0.95), (1000, 0.5)])
def test_strangers_are_no_help_in_series_of_few_independent_samples(n: int, phi: float) -> None:
    """Errors of these are so uncertain that chance makes one a fifth smaller in every third."""
    rng = np.random.default_rng(0)
    z = np.stack([ar1(rng, 100, n, phi) for _ in range(4)], axis=-1)
    pairs = zip(ar1(rng, 100, n, phi), z, strict=True)
    assert np.mean([controlled(x, strangers) is not x for x, strangers in pairs]) <= 0.05


@pytest.mark.parametrize(("n", "phi"), [(100, 0.9), (200, 0.95), (400, 0.5)])
def test_two_sets_of_strangers_leave_the_error_bar_as_it_is(n: int, phi: float) -> None:
    """Twenty-one coefficients fit the noise of so short a series, and hide its correlations.

    Catches a choice by the number of independent samples that is left after the fit: a quarter of
    the first series would be changed, and their errors would be half as large as they should be.
    """
    rng = np.random.default_rng(1)
    z = np.stack([ar1(rng, 60, n, phi) for _ in range(21)], axis=-1).reshape(60, n, 3, 7)
    pairs = zip(ar1(rng, 60, n, phi), z, strict=True)
    found = [controlled(x, one.sum(axis=1), one.reshape(n, -1)) is x for x, one in pairs]
    assert np.mean(found) >= 0.95
