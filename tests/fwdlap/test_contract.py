"""`lap` and `lap_partial` on a convolutional network, in every way the contract allows."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.fwdlap.oracles import assert_close, exact
from tests.matrix import rest
from vmcjob import fwdlap

SIDE, FILTERS, WIDTH, BATCH, N_DIRECTIONS = 6, 3, 4, 3, 5

Arrays = tuple[Any, ...]


def network(image: jax.Array, kernel: jax.Array, weights: jax.Array) -> jax.Array:
    """Convolution, tanh, average pooling, dense layer: (side, side) to (width,)."""
    lhs = image[None, None]
    maps = jnp.tanh(lax.conv_general_dilated(lhs, kernel, (1, 1), "SAME"))
    pooled = lax.reduce_window(maps, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4.0
    return jax.nn.softplus(pooled.reshape(-1) @ weights)


@cache  # one compilation for eight cases each
def expected_of(live: Arrays) -> tuple[Any, Any, Any]:
    """What the oracle says of each image when the derivatives of these arrays are not zero."""
    primals = make_primals()
    one = (primals[0][0], *primals[1:])
    filled = seeds(jax.random.key(1), one, live, symbolic=False)
    return jax.jit(jax.vmap(lambda image: along_a_curve((image, *one[1:]), *filled)))(primals[0])


@pytest.fixture
def primals() -> Arrays:
    return make_primals()


def make_primals() -> Arrays:
    """A batch of images, the kernel and the weights."""
    k_image, k_kernel, k_weights = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(k_image, (BATCH, SIDE, SIDE)),
        jax.random.normal(k_kernel, (FILTERS, 1, 3, 3)),
        jax.random.normal(k_weights, (FILTERS * (SIDE // 2) ** 2, WIDTH)),
    )


def seeds(
    key: jax.Array, primals: Arrays, live: Arrays, *, symbolic: bool
) -> tuple[Arrays, Arrays]:
    """Jacobians and Laplacians: random for the live arrays, zeros of either kind for the rest."""
    jacobians, laplacians = [], []
    for is_live, x, k in zip(live, primals, jax.random.split(key, len(primals)), strict=True):
        k_jacobian, k_laplacian = jax.random.split(k)
        zero = fwdlap.zero_tangent_from_primal(x)
        shape = (N_DIRECTIONS, *x.shape)
        if is_live:
            jacobians.append(jax.random.normal(k_jacobian, shape))
            laplacians.append(jax.random.normal(k_laplacian, x.shape))
        else:
            jacobians.append(zero if symbolic else jnp.zeros(shape))
            laplacians.append(zero if symbolic else jnp.zeros(x.shape))
    return tuple(jacobians), tuple(laplacians)


def along_a_curve(primals: Arrays, jacobians: Arrays, laplacians: Arrays) -> tuple[Any, Any, Any]:
    """The oracle: the network on inputs that have these derivatives at t = 0."""

    def curve(t: jax.Array) -> jax.Array:
        inputs = [
            x + jnp.tensordot(t, j, 1) + jnp.sum(t**2) * s / (2 * N_DIRECTIONS)
            for x, j, s in zip(primals, jacobians, laplacians, strict=True)
        ]
        return network(*inputs)

    return exact(curve, jnp.zeros(N_DIRECTIONS))


def by_lap(primals: Arrays, jacobians: Arrays, laplacians: Arrays) -> tuple[Any, Any, Any]:
    """All at once."""
    return fwdlap.lap(network, primals, jacobians, laplacians)


def by_lap_partial(primals: Arrays, jacobians: Arrays, laplacians: Arrays) -> tuple[Any, Any, Any]:
    """The value first, the derivatives afterwards."""
    value, push = fwdlap.lap_partial(network, primals, jacobians, laplacians)
    return value, *push(jacobians, laplacians)


@pytest.mark.slow
@pytest.mark.parametrize("live", [(True, False, False), (True, True, False), (True, True, True)])
@pytest.mark.parametrize(
    ("symbolic", "way"),
    [(True, by_lap_partial), (False, by_lap), *rest((True, by_lap), (False, by_lap_partial))],
    ids=["symbolic-partial", "dense", "symbolic", "dense-partial"],
)
@pytest.mark.parametrize("wrap", [jax.jit, *rest(lambda f: f)], ids=["jit", "plain"])
def test_a_convolutional_network(
    primals: Arrays, live: Arrays, symbolic: bool, way: Any, wrap: Any
):
    """Random derivatives of any of image, kernel and weights; the images in a batch under vmap."""
    one = (primals[0][0], *primals[1:])
    jacobians, laplacians = seeds(jax.random.key(1), one, live, symbolic=symbolic)

    def of_image(image: jax.Array) -> Any:
        return way((image, *one[1:]), jacobians, laplacians)

    expected = expected_of(live)
    assert_close(wrap(of_image)(primals[0][0]), [leaf[0] for leaf in expected])
    assert_close(wrap(jax.vmap(of_image))(primals[0]), expected)
