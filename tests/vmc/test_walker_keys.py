"""A walker's random numbers in a measurement are its own, whichever device it is on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.forks import on_devices
from tests.vmc.test_worked_examples import make_trapped_electrons
from vmcjob.columns import Axis, Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Nuclei, Psi
from vmcjob.vmc.energy import make_local_energies
from vmcjob.vmc.hamiltonian import Hamiltonian
from vmcjob.vmc.nucleus import Core, Gaussian, Nucleus
from vmcjob.vmc.observing import Observed, Observing, Sample
from vmcjob.vmc.pseudopotential import NonLocalPotential


def noise(psi: Any, params: Any, r: Array, nuclei: Any, key: Array) -> Array:
    """A term of the Hamiltonian that draws, and depends on where the walker is."""
    del psi, params, nuclei
    return jnp.sum(r**2) * jax.random.normal(key, (), r.dtype)


def flat(params: Any, r: Array, nuclei: Nuclei) -> Psi:
    """A wave function with an s and a p part around every nucleus."""
    del params, nuclei
    return Psi(jnp.ones((), r.dtype), jnp.sum(jnp.log1p(0.1 * r[:, 0] ** 2 + 0.2 * r[:, 1] ** 4)))


def energies_with_cores(r: Array) -> np.ndarray:
    """The energies of core potentials at these walkers, on all devices of this process.

    Four points are too few for this wave function, so the result depends on the rotations.
    """
    core = Core(2, (Gaussian(2, 1.0, 1.0),), ((Gaussian(2, 0.5, 3.0),), (Gaussian(2, 0.6, 2.0),)))
    species = (Nucleus((0.0, 0.0, 0.3), 2, core), Nucleus((0.0, 1.0, -0.3), 2, core))
    nuclei = Nuclei(jnp.array([one.position for one in species]), jnp.full(2, 2.0))
    hamiltonian = Hamiltonian({"ecp_nonlocal": NonLocalPotential(species, 4)})

    def energies(r: Array, seed: Array) -> Array:
        return make_local_energies(hamiltonian, flat, nuclei, jax.random.key(seed))(None, r)

    return devices.gather(devices.pmap(energies)(devices.shard(r), jnp.uint32(0)))


class Draws:
    """An observable that draws, in proportion to coordinates: walkers are told apart."""

    columns: Mapping[str, Column] = {
        "drawn": Column("bohr", "what is drawn", (Axis("elec", 2), Axis("xyz", 3)))
    }

    def measure(self, sample: Sample) -> Observed:
        return {"drawn": sample.r * jax.random.normal(sample.key, (2, 3), sample.r.dtype)}


def save_measured(path: str) -> None:
    """Two steps of evaluation, in which no walker moves, on all devices of this process."""
    vmc, state = make_trapped_electrons()
    noisy = replace(vmc, hamiltonian=Hamiltonian({"noise": noise}), observing=Observing((Draws(),)))
    width = devices.replicate(jnp.zeros_like(devices.unreplicate(state.chain.width)))
    state = state._replace(chain=state.chain._replace(width=width))
    step, rows = noisy.evaluate_step(), []
    for index in range(2):
        state, info = step(state, jnp.asarray(index))
        rows.append(devices.unreplicate(info))
    np.savez(
        path,
        energy=[row.energy for row in rows],
        variance=[row.variance for row in rows],
        drawn=[row.observed["drawn"] for row in rows],
        with_cores=energies_with_cores(jax.random.normal(jax.random.key(4), (256, 2, 3))),
    )


@pytest.mark.slow
def test_one_and_two_devices_draw_the_same_for_every_walker(tmp_path: Path) -> None:
    """Rounding of the mean apart; walkers counted anew on each device would show.

    Local energies with core potentials, walker by walker, have the same bits.
    """
    found = []
    for n_devices in (1, 2):
        path = str(tmp_path / f"{n_devices}.npz")
        on_devices(n_devices, save_measured, path)
        found.append(dict(np.load(path)))
    one, two = found
    assert np.abs(np.diff(one["drawn"], axis=0)).min() > 0.0
    np.testing.assert_array_equal(two.pop("with_cores"), one.pop("with_cores"))
    for name, expected in one.items():
        np.testing.assert_allclose(two[name], expected, rtol=1e-9, atol=1e-12)
