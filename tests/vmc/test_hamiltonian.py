"""The local energy of one walker, against states whose energy is known exactly."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ansatze import ANSATZE
from tests.matrix import rest
from tests.oracles import hydrogenic_1s, hydrogenic_2pz, kinetic_energy
from tests.wavefunctions import make_local_energy, unsigned
from vmcjob.vmc.hamiltonian import Kinetic, molecular_hamiltonian
from vmcjob.vmc.system import System, nuclei_of

pytestmark = pytest.mark.usefixtures("float64")


def atom(charge: int, n_up: int = 1, n_down: int = 0) -> System:
    """One nucleus at the origin."""
    return System(((0.0, 0.0, 0.0),), (charge,), n_up, n_down)


@pytest.mark.parametrize("charge", [1, 2, 3])
@pytest.mark.parametrize(("state", "energy"), [(hydrogenic_1s, -1 / 2), (hydrogenic_2pz, -1 / 8)])
def test_the_local_energy_of_a_hydrogenic_eigenstate_is_constant(charge, state, energy) -> None:
    """Eigenstates have one local energy everywhere: −Z²/2 for 1s, −Z²/8 for 2p."""
    local_energy = make_local_energy(state(float(charge)), atom(charge))
    r = jax.random.normal(jax.random.key(charge), (100, 1, 3))
    e_loc = jax.vmap(partial(local_energy, None))(r)
    np.testing.assert_allclose(e_loc, energy * charge**2, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ferminet", *rest("psiformer", "slater-jastrow")])
def test_kinetic_energy_agrees_with_the_hessian_of_the_wave_function(name) -> None:
    """Two independent routes, through log|ψ| forward and through ψ itself."""
    system = System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.0)), (3, 1), 2, 2)
    net = ANSATZE[name](system)
    r = jax.random.normal(jax.random.key(1), (4, 3))
    params = jax.jit(net.init)(jax.random.key(0), r)
    log_psi = net.log_psi

    def local_kinetic_energy(params, r):
        return Kinetic()(unsigned(log_psi), params, r, nuclei_of(system), jax.random.key(0))

    ours, twin = jax.jit(local_kinetic_energy), jax.jit(partial(kinetic_energy, log_psi))
    np.testing.assert_allclose(ours(params, r), twin(params, r), rtol=1e-9)


def test_the_potential_of_a_known_configuration() -> None:
    """LiH at 3 bohr with electrons at hand-picked places: five distances, added by hand."""
    system = System(((0.0, 0.0, 0.0), (0.0, 0.0, 3.0)), (3, 1), 1, 1)
    r = jnp.array([[0.0, 4.0, 0.0], [0.0, 4.0, 3.0]])
    expected = 1 / 3 - (3 / 4 + 1 / 5) - (3 / 5 + 1 / 4) + 3 / 3
    terms = molecular_hamiltonian().terms
    potentials = [terms[name] for name in ("v_ee", "v_en", "v_nn")]
    found = sum(
        v(unsigned(hydrogenic_1s(1.0)), None, r, nuclei_of(system), jax.random.key(0))
        for v in potentials
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
