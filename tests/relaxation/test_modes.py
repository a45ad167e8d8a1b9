"""Motions that change the shape of a molecule, and moves along them."""

import numpy as np
import pytest

from vmcjob.relaxation.internals import gradient, internals_of, value
from vmcjob.relaxation.modes import MAX_MOVE, MIN_CURVATURE, MIN_MOVE, modes_of, trust_radius

WATER = np.array([[0.0, 0.0, 0.22], [0.0, 1.43, -0.88], [0.0, -1.43, -0.88]])
OF_WATER = (8, 1, 1)
LINE = np.array([[0.0, 0.0, z] for z in (-2.2, 0.0, 2.2)])
AMMONIA = np.array(
    [
        [0.0, 0.0, 0.2],
        *([1.77 * np.cos(a), 1.77 * np.sin(a), -0.5] for a in (0.0, 2 * np.pi / 3, 4 * np.pi / 3)),
    ]
)


def springs(positions: np.ndarray, stiffness: float = 0.5) -> np.ndarray:
    """The Hessian of springs at rest between all atoms."""
    n = len(positions)
    found = np.zeros((3 * n, 3 * n))
    for i in range(n):
        for j in range(i):
            slope = gradient((j, i), positions).ravel()
            found += stiffness * np.outer(slope, slope)
    return found


@pytest.mark.parametrize(
    ("positions", "fixed", "number"),
    [
        (WATER, (), 3),
        (WATER, (0,), 3),  # turns about the fixed atom are left out
        (WATER, (1, 2), 2),  # the atom swings in the plane; the turn about the axis is left out
        (WATER[:2], (), 1),
        (WATER[:2], (0,), 1),
        (LINE, (), 4),
        (AMMONIA, (), 6),
    ],
    ids=["water", "one fixed", "two fixed", "dimer", "fixed dimer", "linear", "ammonia"],
)
def test_motions_leave_place_orientation_and_fixed_atoms_alone(positions, fixed, number) -> None:
    """A move that turned the molecule would follow nothing but noise."""
    modes = modes_of(positions, springs(positions), fixed)
    assert sum(modes.groups) == len(modes.directions) == len(modes.curvatures)
    assert modes.projector.trace() == pytest.approx(number)
    np.testing.assert_allclose(modes.projector @ modes.projector, modes.projector, atol=1e-9)
    np.testing.assert_allclose(modes.directions[:, list(fixed)], 0.0, atol=1e-12)
    if not fixed:
        np.testing.assert_allclose(modes.directions.sum(axis=1), 0.0, atol=1e-12)
        turn = np.cross(positions - positions.mean(axis=0), modes.directions).sum(axis=1)
        np.testing.assert_allclose(turn, 0.0, atol=1e-12)


def test_without_noise_a_move_goes_to_the_minimum_of_a_parabola() -> None:
    """A force that is divided by the wrong curvature overshoots or crawls."""
    modes = modes_of(WATER, springs(WATER))
    forces = np.array([0.01, -0.02, 0.03]) * modes.curvatures
    move = modes.move(forces, np.zeros(3))
    np.testing.assert_allclose(np.tensordot(modes.directions, move, 2), [0.01, -0.02, 0.03])


def test_a_force_within_its_error_moves_nothing_and_a_sure_one_moves_fully() -> None:
    modes = modes_of(WATER[:2], springs(WATER[:2]))
    full = np.abs(modes.move(np.array([0.01]), np.array([0.0]))).max()
    moved = [np.abs(modes.move(np.array([0.01]), np.array([s]))).max() for s in (0.02, 0.01, 0.005)]
    np.testing.assert_allclose(moved, [0.0, 0.0, 0.75 * full], atol=1e-15)
    assert not modes.move(np.zeros(1), np.zeros(1)).any()


def test_rounding_does_not_decide_how_motions_of_one_curvature_move() -> None:
    """Ammonia has two such pairs; each of a pair shrunk by itself depends on their mixture."""
    hessian = springs(AMMONIA)
    noise = np.random.default_rng(3).normal(size=hessian.shape)
    others = [hessian, hessian + 1e-10 * (noise + noise.T)]
    found = [modes_of(AMMONIA, one) for one in others]
    curvatures, vectors = np.linalg.eigh(found[0].projector @ hessian @ found[0].projector)
    assert np.sum(np.diff(curvatures[-6:]) < 1e-6) == 2, "two pairs"
    force = (vectors @ np.linspace(-0.02, 0.03, 12)).reshape(AMMONIA.shape)
    moves = []
    for modes in found:
        forces = np.tensordot(modes.directions, force, 2)
        # A noise of 4e-3 on each component of the force, as the error of each direction has it.
        errors = 4e-3 * np.linalg.norm(modes.directions, axis=(1, 2))
        moves.append(modes.move(forces, errors))
    assert np.abs(moves[0]).max() > 1e-3
    np.testing.assert_allclose(moves[1], moves[0], atol=1e-7)
    first = found[0]
    exact = first.move(np.tensordot(first.directions, force, 2), np.zeros(sum(first.groups)))
    farthest = np.linalg.norm(exact, axis=1).max()
    assert farthest < MAX_MOVE
    np.testing.assert_allclose(hessian @ exact.ravel(), first.projector @ force.ravel(), atol=1e-6)


def test_no_nucleus_moves_farther_than_the_trust_radius() -> None:
    modes = modes_of(WATER, springs(WATER))
    for radius in (0.1, MAX_MOVE):
        move = modes.move(np.ones(3), np.zeros(3), radius)
        assert np.linalg.norm(move, axis=1).max() == pytest.approx(radius)


def test_a_motion_toward_a_barrier_goes_downhill() -> None:
    """With a negative curvature, Newton's move climbs to the saddle."""
    modes = modes_of(WATER[:2], -springs(WATER[:2]))
    assert modes.curvatures[0] == pytest.approx(1.0)  # ½ along the bond is 1 along the mode
    force = np.array([0.01])
    assert np.tensordot(modes.directions, modes.move(force, np.zeros(1)), 2)[0] > 0.0
    flat = modes_of(WATER[:2], 0.0 * springs(WATER[:2]))
    assert flat.curvatures[0] == MIN_CURVATURE


def test_the_trust_radius_shrinks_after_energies_that_surely_rise() -> None:
    """And grows back, but never beyond where it began; noise does not shrink it."""
    errors = [0.001] * 4
    assert trust_radius([0.0], errors[:1]) == MAX_MOVE
    assert trust_radius([0.0, 0.002], errors[:2]) == MAX_MOVE
    assert trust_radius([0.0, 0.01], errors[:2]) == MAX_MOVE / 2
    assert trust_radius([0.0, 0.01, 0.02, -1.0], errors) == MAX_MOVE / 2
    assert trust_radius([0.01 * n for n in range(20)], [0.001] * 20) == MIN_MOVE


def test_bonds_and_angles_of_water() -> None:
    """The atoms of a dimer are bonded however far they are; others are not."""
    assert internals_of(OF_WATER, WATER) == [(0, 1), (0, 2), (1, 0, 2)]
    assert internals_of((1, 1), 10.0 * WATER[:2]) == [(0, 1)]
    assert value((0, 1), WATER) == pytest.approx(np.hypot(1.43, 1.10))
    assert value((1, 0, 2), WATER) == pytest.approx(2 * np.degrees(np.arctan2(1.43, 1.10)))
    shift = gradient((1, 0, 2), WATER).sum(axis=0)
    np.testing.assert_allclose(shift, 0.0, atol=1e-6)  # degrees/bohr; the difference's rounding


def test_the_minimum_of_a_coordinate_is_where_the_forces_lead() -> None:
    """Along the direction of `toward_minimum`, the force is the change of the coordinate."""
    hessian = springs(WATER)
    modes = modes_of(WATER, hessian)
    displacement = np.tensordot([0.01, -0.02, 0.015], modes.directions, 1)
    force = (hessian @ displacement.ravel()).reshape(WATER.shape)
    slope = gradient((0, 1), WATER)
    found = np.sum(modes.toward_minimum(slope) * force)
    assert found == pytest.approx(np.sum(slope * displacement), abs=1e-8)
