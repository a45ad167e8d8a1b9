"""Where electrons start: any charge, any spin, one pass."""

import jax
import numpy as np
import pytest

from vmcjob.vmc.system import System, home_nuclei, initial_positions

FAR = ((0.0, 0.0, 0.0), (0.0, 0.0, 50.0))


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
    homes = home_nuclei(System(FAR[: len(charges)], charges, n_up, n_down))
    counts = [homes.count(nucleus) for nucleus in range(len(charges))]
    assert len(homes) == n_up + n_down
    assert counts == expected


def test_dissociated_h2_starts_with_one_electron_of_each_spin_on_either_atom() -> None:
    """Two electrons on one atom of a stretched molecule would take for ever to part."""
    assert sorted(home_nuclei(System(FAR, (1, 1), 1, 1))) == [0, 1]


def test_electrons_start_around_their_home_nuclei() -> None:
    """The mean of many walkers lies on the home nuclei, within five standard errors."""
    system = System(FAR, (3, 1), 2, 2)
    r = np.asarray(initial_positions(system, jax.random.key(0), 4000, spread=0.5))
    centres = np.array(FAR)[home_nuclei(system)]
    assert r.shape == (4000, 4, 3)
    np.testing.assert_allclose(r.mean(axis=0), centres, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(r.std(axis=0), 0.5, rtol=0.1)
