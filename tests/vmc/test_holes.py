"""Orbitals begin with the holes that cores make in them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import ANSATZE
from vmcjob.run.calculation import make_ansatz, make_system
from vmcjob.spec import parse_spec
from vmcjob.spec.size import measure
from vmcjob.vmc.ansatz.holes import CoreHoles, holes_of
from vmcjob.vmc.hartree_fock import molecule_of, solve
from vmcjob.vmc.system import System, nuclei_of

BASIS = "ccecp-ccpvtz"


def system_of(atoms: str, more: str = "", ecp: str = "ccecp") -> System:
    """A system with core potentials, for all atoms but hydrogen."""
    text = f'name = "x"\n[system]\natoms = [{atoms}]\necp = "{ecp}"\n{more}'
    return make_system(parse_spec(text, "job.toml").points[0].spec.system)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("element", "spin"), [("Li", 1), ("Be", 0), ("C", 2), ("Na", 1), ("Mg", 0), ("Si", 2)]
)
def test_a_hole_is_that_of_the_s_orbital_of_hartree_fock(element: str, spin: int) -> None:
    """Inside its maximum, the orbital of pyscf has the logarithm of the factor, within 0.2.

    The logarithm at the nucleus is −0.6 (Be) to −2.4 (Na). Catches a wrong depth or width, and a
    channel or the charge that is left out.
    """
    system = system_of(f'["{element}", 0, 0, 0]', f"spin = {spin}")
    d = np.linspace(0.01, 5.0, 500)
    places = np.stack([0.0 * d, 0.0 * d, d], axis=-1)
    orbitals = molecule_of(system, BASIS).eval_gto("GTOval_sph", places) @ solve(system, BASIS).up
    log_phi = np.log(np.abs(orbitals[:, 0]))
    (hole,) = holes_of(system)
    log_hole = -hole.depth * np.exp(-hole.rate * (np.sqrt(d**2 + 1.0) - 1.0))
    inside = slice(int(np.argmax(log_phi)))
    np.testing.assert_allclose(log_hole[inside], (log_phi - log_phi.max())[inside], atol=0.2)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["ferminet", "psiformer"])
def test_a_network_begins_small_inside_a_core(name: str) -> None:
    """In Na2, with either electron in either core, |ψ| is below two fifths of its largest value.

    Without holes, ψ begins largest at the nuclei. Training then made a node around each of them,
    and Na2 was 9 mHa too high after 2000 steps.
    """
    system = system_of('["Na", 0, 0, -2.9], ["Na", 0, 0, 2.9]')
    net = ANSATZE[name](system)
    d = np.array([0.05, 0.2, 1.0, 1.5, 2.0, 2.5])
    r = np.zeros((2, 2, len(d), 2, 3))  # electron and nucleus; walkers
    away = np.outer(d, [0.6, 0.0, 0.8])
    for electron, nucleus in np.ndindex(2, 2):
        r[electron, nucleus, :, 1 - electron] = [3.0, 0.0, 0.0]
        r[electron, nucleus, :, electron] = away + np.array(system.nuclei[nucleus])
    walkers = jnp.asarray(r.reshape(-1, 2, 3))
    params = net.init(jax.random.key(0), walkers[0])
    log_psi = np.asarray(jax.vmap(net.log_psi, (None, 0))(params, walkers)).reshape(4, len(d))
    assert (log_psi[:, :2].max(axis=1) < log_psi.max(axis=1) + math.log(0.4)).all()


def test_each_nucleus_has_its_own_hole() -> None:
    """Of H, Na and Si, an electron at a nucleus is in the hole of this nucleus alone."""
    system = system_of('["H", 0, 0, 0], ["Na", 0, 0, 20], ["Si", 0, 0, 40]', "spin = 2")
    sodium, silicon = holes_of(system)
    d_en = jnp.array([[0.0, 20.0, 40.0], [20.0, 0.0, 20.0], [40.0, 20.0, 0.0]])
    holes = CoreHoles((sodium, silicon), determinants=1, orbitals=1)
    factors = holes.apply(holes.init(jax.random.key(0), d_en), d_en)
    expected = np.exp([0.0, -sodium.depth, -silicon.depth])
    np.testing.assert_allclose(np.asarray(factors)[:, 0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["ferminet", "psiformer"])
def test_a_run_of_before_has_no_parameters_of_holes(kind: str) -> None:
    """Its checkpoint could not be read with more parameters than it has."""
    for core_holes in (True, False):
        text = f"""name = "x"
        system = {{ atoms = [["Na", 0, 0, 0], ["H", 0, 0, 3.6]], ecp = "ccecp" }}
        ansatz = {{ kind = "{kind}", core_holes = {str(core_holes).lower()} }}"""
        spec = parse_spec(text, "job.toml").points[0].spec
        system = make_system(spec.system)
        net = make_ansatz(spec.ansatz, system)
        like = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((2, 3)), nuclei_of(system))
        names = jax.tree_util.tree_leaves_with_path(like)
        assert any("depth" in jax.tree_util.keystr(path) for path, _ in names) == core_holes
        assert sum(leaf.size for _, leaf in names) == measure(spec).parameters


def test_only_nuclei_with_a_core_have_holes() -> None:
    """All-electron atoms keep their parameters; nitrogen's core in this set does not repel."""
    assert holes_of(System(((0.0, 0.0, 0.0),), (11,), 6, 5)) == ()
    (hole,) = holes_of(system_of('["N", 0, 0, 0]', "spin = 3", "stuttgart"))
    assert hole.depth < 0.01
    assert hole.rate == pytest.approx(200.0, rel=0.01)  # 1/bohr, of a radius of 0.1 bohr
    hydride = system_of('["H", 0, 0, 2], ["Na", 0, 0, 0]')
    assert [hole.nucleus for hole in holes_of(hydride)] == [1]
