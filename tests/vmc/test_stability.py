"""Hartree–Fock starts where bonds are stretched, and walkers that start where they say."""

import numpy as np
import pytest

from vmcjob.vmc.hartree_fock import Coefficients, HartreeFock, populations, solve
from vmcjob.vmc.stability import alternating
from vmcjob.vmc.system import (
    System,
    deviates,
    exchanged,
    find_homes,
    homes_of,
    initial_positions,
)

A = 4.6447
SQUARE = System(((0.0, 0.0, 0.0), (A, 0.0, 0.0), (0.0, A, 0.0), (A, A, 0.0)), (1,) * 4, 2, 2)


def hydrogen(distance: float) -> System:
    """Two atoms, bohr."""
    return System(((0.0, 0.0, 0.0), (0.0, 0.0, distance)), (1, 1), 1, 1)


def start(system: System, method: str = "stable", n_determinants: int = 4) -> HartreeFock:
    """Its Hartree–Fock start in the default basis."""
    found = solve(system, "cc-pvdz", method, None, n_determinants)  # pyright: ignore[reportArgumentType]
    assert found.is_converged
    return found


@pytest.mark.parametrize("distance", [20.0, 5000.0])
def test_atoms_far_apart_are_atoms(distance: float) -> None:
    """Restricted, each electron would be at the wrong proton half of the time, for 0.27 hartree."""
    apart = start(hydrogen(distance))
    atom = start(System(((0.0, 0.0, 0.0),), (1,), 1, 0))
    assert apart.method == "uhf"
    assert apart.energy == pytest.approx(2 * atom.energy, abs=1e-6)
    assert start(hydrogen(distance), "auto").energy > apart.energy + 0.2


def test_a_bond_that_is_stable_keeps_its_symmetry() -> None:
    """Of a restricted minimum nothing is broken."""
    stable, plain = start(hydrogen(1.4)), start(hydrogen(1.4), "auto")
    assert stable.method == "rhf"
    assert stable.energy == pytest.approx(plain.energy, abs=1e-9)


@pytest.mark.parametrize("n_determinants", [2, 3, 4])
def test_the_partners_of_parted_spins_are_a_singlet_together(n_determinants: int) -> None:
    """One partner alone, or one with more weight, is not symmetric: a part of it is a triplet.

    Of two electrons ψ(r, r′) = Σ_k u_k(r) d_k(r′) is a matrix of coefficients. A singlet's is
    symmetric.
    """
    both, alone = start(hydrogen(4.0), "half-projected"), start(hydrogen(4.0))
    assert (both.method, both.energy) == ("uhf", pytest.approx(alone.energy, abs=1e-7))
    shared = Coefficients.of(both, n_determinants)
    psi = np.einsum("kai,kbi->ab", shared.up, shared.down)
    np.testing.assert_allclose(psi, psi.T, atol=1e-6 * np.abs(psi).max())
    of_one = np.einsum("ai,bi->ab", alone.up, alone.down)
    assert np.abs(of_one - of_one.T).max() > 0.1 * np.abs(of_one).max()


def test_one_determinant_has_restricted_orbitals_and_the_lower_energy_to_beat() -> None:
    """One determinant cannot be a singlet of parted spins; above the lower one it is suspect."""
    one = start(hydrogen(4.0), "half-projected", n_determinants=1)
    assert one.energy == pytest.approx(start(hydrogen(4.0)).energy, abs=1e-7)
    np.testing.assert_array_equal(one.up, one.down)


def test_what_is_not_broken_starts_as_before() -> None:
    """A closed shell that is stable, and an open one, have the numbers of "stable"."""
    for system in (hydrogen(1.4), System(((0.0, 0.0, 0.0),), (3,), 2, 1)):
        new, old = start(system, "half-projected"), start(system)
        assert (new.energy, new.method) == (old.energy, old.method)
        np.testing.assert_array_equal(new.up, old.up)


def test_a_stretched_square_starts_near_four_atoms() -> None:
    """Restricted it stands at -1.725 hartree; four atoms have -2, the square -2.0155."""
    square = start(SQUARE)
    assert square.method == "uhf"
    assert -2.0155 < square.energy < -1.998


def test_neighbours_point_apart() -> None:
    """Of four atoms in a square, as homes have them, two of a side would share their spin."""
    places = np.array(SQUARE.nuclei)
    apart = alternating(np.array([[1, 0, 1, 0], [0, 1, 0, 1]]), places)
    assert (apart[0] == apart[0][::-1]).all()
    assert apart.sum(axis=1).tolist() == [2, 2]
    # What is unequal changes no place: a beryllium between two hydrogens keeps its four electrons.
    chain = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 6.0]])
    kept = np.array([[1, 2, 0], [0, 2, 1]])
    assert (alternating(kept, chain) == kept).all()


def test_a_triplet_whose_orbitals_cannot_turn_is_stable() -> None:
    """pyscf finds no rotation to begin with, and says so by an exception."""
    helium = System(((0.0, 0.0, 0.0),), (2,), 2, 0)
    assert start(helium).energy == pytest.approx(start(helium, "auto").energy, abs=1e-8)


def test_walkers_start_where_the_electrons_of_the_determinant_are() -> None:
    """One at each proton, of the spin that Hartree–Fock has there; an exchange never happens."""
    system = hydrogen(50.0)
    solution = start(system)
    counts = populations(system, solution)
    np.testing.assert_allclose(counts.sum(axis=1), [1.0, 1.0], atol=1e-8)
    homes = homes_of(system, counts)
    assert [home.nucleus for home in homes] == counts.argmax(axis=1).tolist()
    assert sorted(home.nucleus for home in homes) == [0, 1]


def test_populations_become_whole_electrons() -> None:
    """The largest remainders are rounded up, and screened charges follow."""
    lithium_hydride = System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.0)), (3, 1), 2, 2)
    homes = homes_of(lithium_hydride, np.array([[1.35, 0.65], [1.35, 0.65]]))
    assert [(home.nucleus, home.charge) for home in homes] == [(0, 3), (1, 1), (0, 2), (1, 1)]
    neutral = homes_of(lithium_hydride, np.array([[2.0, 0.0], [1.0, 1.0]]))
    assert [home.nucleus for home in neutral] == [0, 0, 0, 1]


@pytest.mark.parametrize("noise", [0.0, 4e-16, -4e-16])
def test_electrons_of_equal_shares_go_apart(noise: float) -> None:
    """Which half is the larger one is rounding's choice, and must not be that of the walkers."""
    half = np.array([[0.5 + noise, 0.5 - noise], [0.5 + noise, 0.5 - noise]])
    assert [home.nucleus for home in homes_of(hydrogen(1.4), half)] == [0, 1]
    quarters = np.full((2, 4), 0.5) + noise * np.array([1, -1, 1, -1])
    square = System(tuple((0.0, 0.0, 4.0 * k) for k in range(4)), (1, 1, 1, 1), 2, 2)
    assert sorted(home.nucleus for home in homes_of(square, quarters)) == [0, 1, 2, 3]


def test_walkers_take_turns_among_arrangements() -> None:
    """With one arrangement no walker would ever see the other partner of two far atoms."""
    import jax

    system = hydrogen(50.0)
    homes = find_homes(system)
    xi = deviates(system, jax.random.key(0), 65)
    r = initial_positions(system, xi, arrangements=[homes, exchanged(system, homes)])
    alone = initial_positions(system, xi, arrangements=[homes])
    np.testing.assert_array_equal(r[::2], alone[::2])
    np.testing.assert_allclose(r[1::2, :, 2].mean(axis=0), [50.0, 0.0], atol=1.0)


def test_homes_may_be_given() -> None:
    """An electron starts within a few bohr of the home that it was given."""
    import jax

    system = hydrogen(50.0)
    homes = find_homes(system)[::-1]
    r = initial_positions(system, deviates(system, jax.random.key(0), 64), arrangements=[homes])
    nearest = np.array(r)[:, :, 2].mean(axis=0)
    np.testing.assert_allclose(nearest, [50.0, 0.0], atol=1.0)
