"""Products for each of a batch, and long sums of squares, come out the same in every layout."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.fwdlap.composites import weight
from tests.fwdlap.oracles import check
from vmcjob import fwdlap
from vmcjob.fwdlap import contraction

LAYOUTS = "hif", "hfi", "fih"  # heads, electrons, features


def heads(r: jax.Array, seed: int, mixed: bool, layout: str) -> jax.Array:
    """Features (2, electrons, 4), each of its own electron alone, or of all."""
    field = jnp.mean(jnp.tanh(r), axis=0) if mixed else 0.0
    features = jnp.tanh(jnp.einsum("ic,hcf->hif", r + field, weight(seed, 2, 3, 4)))
    return features.transpose(["hif".index(axis) for axis in layout])


# Each layout is left and right twice, by turns with either factor and either axis.
ALWAYS = (1, 1, False), (2, 0, True), (3, 1, True), (4, 0, False), (8, 0, True), (6, 1, False)
ORDERS = [
    pytest.param(
        *(summed, left, right, whole),
        marks=() if (k, i, whole) in ALWAYS else pytest.mark.full_matrix,
    )
    for k, (left, right) in enumerate(product(LAYOUTS, LAYOUTS))
    for i, summed in enumerate("fi")
    for whole in (False, True)
]


@pytest.mark.parametrize(("summed", "left", "right", "whole"), ORDERS)
def test_a_product_does_not_depend_on_the_order_of_axes(
    left: str, right: str, summed: str, whole: bool, monkeypatch: pytest.MonkeyPatch
):
    """Which factor comes first, or whether both heads are in one, is chosen by sizes and axes."""
    monkeypatch.setattr(contraction, "SMALL_FACTOR", 1000 if whole else 0)
    contract = [left.index(summed)], [right.index(summed)]
    batch = [left.index("h")], [right.index("h")]

    def fun(r: jax.Array) -> jax.Array:
        waves = [
            jnp.sin(lax.dot_general(heads(r, 1, a, left), heads(r, 2, b, right), (contract, batch)))
            for a, b in product((False, True), repeat=2)
        ]
        terms = [jnp.sum(wave * weight(k, *wave.shape)) for k, wave in enumerate(waves)]
        return jnp.sum(jnp.stack(terms))

    check(fun, jnp.asarray(np.random.default_rng(3).normal(size=(3, 3))))


@pytest.mark.parametrize("whole", [False, True])
def test_heads_may_have_two_axes(whole: bool, monkeypatch: pytest.MonkeyPatch):
    """Logits and what they mix, for each of 2 x 2 heads."""
    monkeypatch.setattr(contraction, "SMALL_FACTOR", 1000 if whole else 0)

    def fun(r: jax.Array) -> jax.Array:
        h = jnp.stack([heads(r, seed, True, "hif") for seed in (1, 2)])
        logits = jnp.einsum("abif,abjf->abij", h, jnp.sin(h))
        mixed = jnp.einsum("abij,abjf->abif", jnp.tanh(logits), h)
        return jnp.sum(jnp.sin(mixed) * weight(3, *mixed.shape))

    check(fun, jnp.asarray(np.random.default_rng(3).normal(size=(3, 3))))


def test_of_own_directions_only_those_are_summed():
    """What mixes electrons has 30 directions, an electron's features three: 30 terms, not 300."""

    def fun(r: jax.Array) -> jax.Array:
        own, mixed = heads(r, 1, False, "hif"), heads(r, 2, True, "hif")
        return jnp.einsum("hif,hig->hfg", mixed, own).sum()

    traced = jax.make_jaxpr(lambda r: fwdlap.laplacian(fun)(r))(jnp.ones((10, 3)))
    products = [eqn for eqn in traced.eqns if eqn.primitive.name == "dot_general"]
    batched = [eqn for eqn in products if eqn.params["dimension_numbers"][1][0]]
    sizes = [
        np.prod([eqn.invars[0].aval.shape[a] for a in eqn.params["dimension_numbers"][0][0]])
        for eqn in batched
    ]
    assert max(sizes) == 30


@pytest.mark.parametrize("n", [10, 11, 13])
def test_squares_along_many_directions_are_added_up_whole(n: int):
    """Of 30, 33 and 39 directions: as they are, and by halves with one or several left over."""

    def fun(r: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(r.reshape(-1) @ weight(4, r.size, 3)))

    check(fun, jnp.asarray(np.random.default_rng(5).normal(size=(n, 3))))
