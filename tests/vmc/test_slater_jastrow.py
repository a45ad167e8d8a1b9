"""Slater–Jastrow: exact states, cusps at nuclei, filled shells, and a start for any molecule."""

from functools import partial
from itertools import islice
from math import atanh, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import small_slater_jastrow
from tests.matrix import rest
from tests.wavefunctions import Clamped, make_local_energy
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.ansatz.atomic import Subshell, radials, slater_exponent, starts, subshells
from vmcjob.vmc.ansatz.jastrow import ThreeBodyJastrow
from vmcjob.vmc.ansatz.slater import STRONGEST, SlaterOrbitals
from vmcjob.vmc.contracts import Params
from vmcjob.vmc.system import System, deviates, initial_positions

pytestmark = pytest.mark.usefixtures("float64")
ORIGIN = ((0.0, 0.0, 0.0),)


def without_noise(params: Params) -> Params:
    """Initial parameters in which each electron is in one atomic function and in no other."""
    return jax.tree.map(jnp.round, params)


def moved(params: Params, seed: int = 0) -> Params:
    """Every parameter off its initial value."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + rng.normal(0.0, 0.2, leaf.shape), params)


@pytest.mark.slow
@pytest.mark.parametrize(("charge", "l"), [(1, 1), (6, 2), *rest((1, 0), (2, 0), (6, 1))])
def test_hydrogenic_states_are_exact(charge, l) -> None:  # noqa: E741
    """1s, 2p and 3d of H, He+ and C5+: E_loc = −Z²/2n² everywhere, the nucleus nearby included.

    Catches a radial function whose cusp is not −Z/(l+1), and a harmonic that is not one.
    """
    system = System(ORIGIN, (charge,), 1, 0)
    net = WaveFunction(SlaterOrbitals(system, 1, False, 1), ThreeBodyJastrow(system.n_up, 3))
    net = Clamped(net, system)
    r = jax.random.normal(jax.random.key(charge), (50, 1, 3)) / charge
    params = without_noise(jax.jit(net.init)(jax.random.key(0), r[0]))
    basis = radials(system, 1)
    place = max(i for i, radial in enumerate(basis) if radial.subshell == Subshell(l + 1, l))
    first = sum(2 * radial.subshell.l + 1 for radial in basis[:place])
    stretch = atanh(log(charge / (l + 1) / basis[place].zeta) / log(STRONGEST))
    orbitals = params["params"]["orbitals"]
    functions = orbitals["AtomicFunctions_0"]
    functions["stretch"] = functions["stretch"].at[place].set(stretch)
    kernel = jnp.zeros_like(orbitals["Dense_0"]["kernel"])
    orbitals["Dense_0"]["kernel"] = kernel.at[first : first + 2 * l + 1].set(1.0)
    local_energy = partial(make_local_energy(net.log_psi, system), params)
    e_loc = jax.jit(jax.vmap(local_energy))(r)
    np.testing.assert_allclose(e_loc, -0.5 * (charge / (l + 1)) ** 2, rtol=1e-8)


def test_the_cusp_at_a_nucleus_is_its_charge() -> None:
    """∂ log|ψ| / ∂r = −Z on the spherical average at either nucleus, whatever the parameters."""
    system = System(((0.0, 0.0, 0.0), (0.0, 0.5, 1.0)), (4, 1), 3, 2)
    net = small_slater_jastrow(system)
    r = jax.random.normal(jax.random.key(1), (5, 3))
    log_psi = jax.jit(net.log_psi)
    params = moved(jax.jit(net.init)(jax.random.key(0), r))
    step = 1e-6 * jnp.array([0.48, 0.6, 0.64])
    for electron in (1, 4):
        for nucleus, charge in zip(system.nuclei, system.charges, strict=True):
            met = r.at[electron].set(jnp.array(nucleus))
            beside = [log_psi(params, met.at[electron].add(s * step)) for s in (1, -1)]
            slope = (sum(beside) / 2 - log_psi(params, met)) / 1e-6
            np.testing.assert_allclose(slope, -charge, rtol=1e-3)


@pytest.mark.parametrize(
    ("charge", "n_up"), [(30, 15), *rest((4, 2), (10, 5))], ids=["Zn", "Be", "Ne"]
)
def test_filled_shells_are_round(charge, n_up) -> None:
    """Turning all electrons about the nucleus changes nothing.

    Catches a shell that is filled in part, and harmonics of one degree that differ in their norm.
    """
    system = System(ORIGIN, (charge,), n_up, n_up)
    net = small_slater_jastrow(system, determinants=1, full_determinants=False)
    r = initial_positions(system, deviates(system, jax.random.key(1), 1))[0]
    params = without_noise(jax.jit(net.init)(jax.random.key(0), r))
    log_psi = jax.jit(net.log_psi)
    rotation, _ = jnp.linalg.qr(jax.random.normal(jax.random.key(2), (3, 3)))
    np.testing.assert_allclose(log_psi(params, r @ rotation), log_psi(params, r), rtol=1e-9)


FAR = ((0.0, 0.0, 0.0), (0.0, 0.0, 50.0))
MOLECULES = {
    "H": System(ORIGIN, (1,), 1, 0),
    "H2-": System(ORIGIN, (1,), 3, 0),
    "triplet O2": System(((0.0, 0.0, 0.0), (0.0, 0.0, 2.28)), (8, 8), 9, 7),
    "N2, dissociated": System(FAR, (7, 7), 7, 7),
    "U91+": System(ORIGIN, (92,), 1, 0),
    "U": System(ORIGIN, (92,), 46, 46),
}


@pytest.mark.parametrize("system", MOLECULES.values(), ids=MOLECULES)
def test_electrons_of_a_spin_start_in_different_states(system) -> None:
    """The Pauli principle; two columns alike would make ψ zero everywhere."""
    known = {(radial.nucleus, radial.subshell) for radial in radials(system, 1)}
    for spin, n_electrons in enumerate((system.n_up, system.n_down)):
        found = starts(system, spin)
        assert len(set(found)) == len(found) == n_electrons
        assert {(state.nucleus, state.subshell) for state in found} <= known


@pytest.mark.parametrize("name", ["triplet O2", *rest("N2, dissociated", "U91+")])
def test_the_start_is_not_singular(name) -> None:
    """In float32, at first walkers; without the noise, which would hide two equal columns."""
    jax.config.update("jax_enable_x64", False)
    system = MOLECULES[name]
    net = small_slater_jastrow(system, full_determinants=False)
    r = initial_positions(system, deviates(system, jax.random.key(1), 16))
    params = without_noise(jax.jit(net.init)(jax.random.key(0), r[0]))
    log_psi = jax.jit(jax.vmap(net.log_psi, (None, 0)))(params, r)
    assert np.isfinite(log_psi).all()


def test_subshells_are_filled_in_madelungs_order() -> None:
    """As in the periodic table, without f."""
    found = ["".join((str(n), "spd"[l])) for n, l in islice(subshells(), 12)]  # noqa: E741
    assert found == ["1s", "2s", "2p", "3s", "3p", "4s", "3d", "4p", "5s", "4d", "5p", "6s"]


@pytest.mark.parametrize(
    ("subshell", "charge"),
    [((1, 0), 25.70), ((2, 1), 21.85), ((3, 1), 14.75), ((3, 2), 6.25), ((4, 0), 3.75)],
)
def test_slaters_own_example(subshell, charge) -> None:
    """Effective charges of iron as Slater gives them, Phys. Rev. 36, 57 (1930), page 59."""
    n = {1: 1.0, 2: 2.0, 3: 3.0, 4: 3.7}[subshell[0]]
    np.testing.assert_allclose(slater_exponent(26, Subshell(*subshell)), charge / n, rtol=1e-12)
