"""Where electrons start: any charge, any spin, one pass."""

import jax
import numpy as np
import pytest

from tests.ansatze import small_ferminet
from vmcjob.vmc.system import System, deviates, find_homes, initial_positions

FAR = ((0.0, 0.0, 0.0), (0.0, 0.0, 50.0))


def nuclei(system: System) -> list[int]:
    """The home nucleus of each electron."""
    return [home.nucleus for home in find_homes(system)]


@pytest.mark.parametrize(
    ("charges", "n_up", "n_down", "expected"),
    [
        ((1,), 1, 0, [1]),
        ((1, 1), 1, 1, [1, 1]),
        ((3, 1), 2, 2, [3, 1]),
        ((8, 8), 9, 7, [8, 8]),  # triplet O2, on which a peer's initializer never ends
        ((1, 1), 1, 0, [1, 0]),  # H2+
        ((1,), 1, 1, [2]),  # H−
        ((3, 9), 6, 6, [3, 9]),
    ],
)
def test_every_atom_gets_its_electrons(
    charges: tuple[int, ...], n_up: int, n_down: int, expected: list[int]
) -> None:
    """Electrons are shared out by unscreened charge, whatever the total charge and spin."""
    homes = nuclei(System(FAR[: len(charges)], charges, n_up, n_down))
    counts = [homes.count(nucleus) for nucleus in range(len(charges))]
    assert len(homes) == n_up + n_down
    assert counts == expected


def test_dissociated_h2_starts_with_one_electron_of_each_spin_on_either_atom() -> None:
    """Two electrons on one atom of a stretched molecule would take for ever to part."""
    assert sorted(nuclei(System(FAR, (1, 1), 1, 1))) == [0, 1]


def test_electrons_start_around_their_home_nuclei() -> None:
    """The mean of many walkers lies on the home nuclei, within five standard errors."""
    system = System(FAR, (3, 1), 2, 2)
    r = np.asarray(initial_positions(system, deviates(system, jax.random.key(0), 4000), spread=0.5))
    centres = np.array(FAR)[nuclei(system)]
    charges = sorted(home.charge for home in find_homes(system))
    assert r.shape == (4000, 4, 3)
    assert charges == [1, 1, 2, 3]  # of lithium's three electrons, each sees one charge less
    np.testing.assert_allclose(r.mean(axis=0), centres, atol=5 * 0.5 / np.sqrt(4000))
    spreads = np.sort(r.std(axis=0).mean(axis=-1))
    np.testing.assert_allclose(spreads, [0.5 / 3, 0.25, 0.5, 0.5], rtol=0.1)


@pytest.mark.parametrize(
    ("charge", "n_up", "n_down"),
    [(18, 1, 1), (36, 1, 1), (92, 1, 0), (92, 46, 46)],
    ids=["Ar16+", "Kr34+", "U91+", "U"],
)
def test_walkers_start_where_the_wave_function_has_not_underflowed(charge, n_up, n_down) -> None:
    """One bohr off U91+, exp(-92 r) is zero in float32, and log|ψ| = -∞ would never move."""
    system = System(FAR[:1], (charge,), n_up, n_down)
    net = small_ferminet(system)
    r = initial_positions(system, deviates(system, jax.random.key(0), 256))
    log_psi = net.log_psi
    params = jax.jit(net.init)(jax.random.key(1), r[0])
    assert np.isfinite(jax.jit(jax.vmap(log_psi, (None, 0)))(params, r)).all()
