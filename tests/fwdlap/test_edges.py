"""What stands at the edge of the rules: nothing at all, half precision, odd tangent rules."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.fwdlap.oracles import check
from vmcjob import fwdlap

EMPTIES: dict[str, Callable[[jax.Array], Any]] = {
    "slice": lambda r: jnp.sum(r[4:]) + jnp.sum(r**3),
    "broadcast": lambda r: jnp.sum(jnp.broadcast_to(jnp.sum(r**2), (0,))),
    "concatenation": lambda r: jnp.sum(jnp.concatenate([r[:0], r]) ** 2),
    "extremum": lambda r: jnp.sum(jnp.max(r[4:], axis=1)) + jnp.sum(r**3),
    "product": lambda r: jnp.sum(jnp.tanh(jnp.tanh(r[4:]) @ jnp.ones((3, 5)))) + jnp.sum(r**3),
    "contraction": lambda r: jnp.sum((r[:0].T @ r[:0]) * r[:3]) + jnp.sum(r**3),
    "mean field": lambda r: jnp.sum(jnp.sum(jnp.tanh(r[4:]), axis=0) * r[0]) + jnp.sum(r**3),
    "difference": lambda r: jnp.sum((r[0] - jnp.zeros((0, 3))) ** 2) + jnp.sum(r**3),
    "scan": lambda r: lax.associative_scan(jnp.multiply, r.ravel())[-1],
}


@pytest.mark.parametrize("name", EMPTIES)
def test_of_nothing_comes_no_derivative(name: str):
    """No electrons of one spin, say."""
    check(EMPTIES[name], 0.5 + jnp.arange(12.0).reshape(4, 3) / 7)


def test_of_no_electrons_there_is_a_gradient_of_their_shape():
    """As of any function of an empty array."""
    jet = fwdlap.laplacian(lambda r: jnp.sum(r**2))(jnp.zeros((0, 3)))
    assert jet.gradient.shape == (0, 3)
    assert jet.laplacian == 0.0


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize(
    "move", [lambda x: x[::-1], lambda x: jnp.pad(x, (1, 0))[:-1], lambda x: x[jnp.arange(2600)]]
)
def test_half_precision_loses_digits_but_no_directions(
    kind: Any, move: Callable[[jax.Array], jax.Array]
):
    """Behind a motion of elements, more directions than half precision can count."""

    def fun(x: jax.Array) -> jax.Array:
        return jnp.sum(move(x.astype(kind)).astype(x.dtype) * jnp.arange(x.size))

    x = jnp.linspace(0.0, 1.0, 2600)
    # Weights of up to 2600 are rounded to the 8 digits of bfloat16 on their way back.
    np.testing.assert_allclose(fwdlap.laplacian(fun)(x).gradient, jax.grad(fun)(x), rtol=2**-8)


@jax.custom_jvp
def without_mean(x: jax.Array) -> jax.Array:
    """Its value acts on each element, its declared derivative does not."""
    return 1.0 * x


without_mean.defjvp(lambda p, t: (without_mean(p[0]), t[0] - jnp.mean(t[0])))


@jax.custom_jvp
def softly(x: jax.Array) -> jax.Array:
    """Its rule calls it again."""
    return jnp.log(1.0 + jnp.exp(x))


softly.defjvp(lambda p, t: (softly(p[0]), t[0] * (1.0 - jnp.exp(-softly(p[0])))))


@pytest.mark.parametrize("fun", [without_mean, softly])
def test_the_declared_tangent_rule_counts(fun: Callable[[jax.Array], jax.Array]):
    """Also where the body alone would be element by element."""
    check(lambda x: jnp.sum(fun(x) ** 2), jax.random.normal(jax.random.key(0), (7,)))


@pytest.mark.parametrize("fun", [jax.nn.relu, softly])
def test_a_tangent_rule_that_acts_on_elements_stays_sparse(fun: Callable[[jax.Array], jax.Array]):
    """No Jacobian of all elements by all is ever made."""
    jaxpr = jax.make_jaxpr(fwdlap.derivatives(lambda x: jnp.sum(fun(x) ** 2)))(jnp.ones(50))
    assert "50,50" not in str(jaxpr)


def test_no_walkers_have_no_energies():
    """As `jax.vmap` has it."""
    energies = fwdlap.over_walkers(lambda r: fwdlap.laplacian(jnp.sum)(r).laplacian)
    assert energies(jnp.zeros((0, 2, 3))).shape == (0,)


def test_without_jit_the_same_comes_out():
    """JAX's debugging mode compiles nothing ahead."""

    def function(x):
        i, j = jnp.triu_indices(len(x), 1)
        return jnp.sum((x[i] * x[j]) ** 2)

    x = jnp.arange(1.0, 5.0)
    expected = fwdlap.laplacian(function)(x).laplacian
    with jax.disable_jit():
        found = fwdlap.laplacian(function)(x).laplacian
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [jnp.int32, bool])
@pytest.mark.parametrize("of", [fwdlap.laplacian, fwdlap.derivatives])
def test_integers_have_no_derivatives(kind: Any, of: Callable[..., Any]):
    """Zeros for the gradient of Σ x³ would be wrong without a word; as of `jax.grad`, TypeError."""
    with pytest.raises(TypeError, match=rf"of dtype {jnp.dtype(kind)}, shape \(3,\)"):
        of(lambda x: jnp.sum(x**3))(jnp.ones(3, kind))


@pytest.mark.parametrize(
    ("fun", "words"),
    [
        (lambda x: x**3, r"dtype float64, shape \(3,\): for arrays, use `derivatives`"),
        (lambda x: jnp.sum(x)[None], r"shape \(1,\)"),
        (lambda x: jnp.sum(x > 0.0), r"dtype int64, shape \(\)"),
        (lambda x: (jnp.sum(x), x), "returns a tuple: for any pytree of arrays"),
    ],
)
def test_a_function_that_is_not_scalar_is_refused(fun: Callable[..., Any], words: str):
    """With its dtype and shape; else the gradient's reshaping failed, or its first part counted."""
    with pytest.raises(TypeError, match=words):
        fwdlap.laplacian(fun)(jnp.ones(3))


def test_an_argument_that_is_no_array_is_named():
    """A user's wave function may take a dictionary; JAX's own error does not say what to do."""
    with pytest.raises(TypeError, match="got a dict: for any pytree of arrays, use `derivatives`"):
        fwdlap.laplacian(lambda x: x["a"])({"a": jnp.ones(())})  # pyright: ignore[reportArgumentType]


def test_derivatives_of_another_shape_than_their_primal_are_refused():
    """One that can be broadcast would count for directions that nobody gave."""
    x, zero = jnp.ones(3), fwdlap.zero_tangent_from_primal(jnp.ones(3))
    for jacobian, laplacian, words in (
        (jnp.ones((2, 1)), zero, r"Jacobian of shape \(2, 1\); expected \(n, 3\)"),
        (zero, jnp.ones(1), r"Laplacian of shape \(1,\); expected \(3\)"),
    ):
        with pytest.raises(TypeError, match=words):
            fwdlap.lap(jnp.sum, (x,), (jacobian,), (laplacian,))
    with pytest.raises(TypeError, match="dtype int32"):
        fwdlap.lap(jnp.sum, (jnp.ones(3, jnp.int32),), (jnp.ones((2, 3)),), (zero,))


def test_an_integer_without_derivatives_is_an_argument_like_any_other():
    """The place of an element, say."""
    x, at = jnp.arange(3.0), jnp.asarray(1)
    zeros = [fwdlap.zero_tangent_from_primal(one) for one in (x, at)]
    _, jacobian, _ = fwdlap.lap(lambda x, at: x[at] ** 2, (x, at), (jnp.eye(3), zeros[1]), zeros)
    np.testing.assert_array_equal(jacobian, [0.0, 2.0, 0.0])
