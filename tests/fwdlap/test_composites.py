"""Whole wave functions and other compositions agree with JAX's own second derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fwdlap.composites import COMPOSITES, of_chain
from tests.fwdlap.networks import hydrogen_chain
from tests.fwdlap.oracles import check
from vmcjob import fwdlap

# test_ansatz.py asks for as much of the project's own networks.
OWN = "ferminet", "psiformer", "ferminet_polarised"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full_matrix if name in OWN else ())
        for name in COMPOSITES
    ],
)
def test_a_composition_agrees_with_the_hessian(name: str):
    """Rules that are right one by one must be right together, at the sizes VMC uses them."""
    check(COMPOSITES[name], jnp.asarray(np.random.default_rng(3).normal(size=(4, 3))))


PARTS = "log_sum_exp_of_determinants", "masked_attention"  # all of networks that has such sums
LARGE = {
    "psiformer": partial(of_chain, "psiformer", hydrogen_chain(9)),
    "ferminet": partial(of_chain, "ferminet", hydrogen_chain(9)),
} | {name: COMPOSITES[name] for name in PARTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in PARTS else pytest.mark.full_matrix) for name in LARGE],
)
def test_many_electrons_agree_with_the_hessian_too(name: str):
    """Long sums and large determinants are computed in other ways than short and small ones."""
    check(LARGE[name], jnp.asarray(np.random.default_rng(5).normal(size=(9, 3))))


@pytest.mark.full_matrix  # test_ansatz.py compares batches under vmap; chunks: test_chunks.py
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ferminet", "psiformer"])
def test_a_network_keeps_its_laplacian_under_vmap_and_chunking(name: str):
    """Batching rules of what the interpreter emits must not mix walkers."""
    walkers = jnp.asarray(np.random.default_rng(4).normal(size=(3, 4, 3)))
    jet = fwdlap.laplacian(COMPOSITES[name])
    batch = jax.jit(jax.vmap(jet))(walkers)
    one = jax.jit(jet)
    for i, r in enumerate(walkers):
        for got, expected in zip(batch, one(r), strict=True):
            np.testing.assert_allclose(got[i], expected, rtol=1e-9, atol=1e-9)
