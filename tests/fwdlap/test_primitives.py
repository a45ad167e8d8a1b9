"""Every primitive, on every sparsity pattern, agrees with JAX's second derivatives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fwdlap.oracles import check
from tests.fwdlap.primitives import BINARY, MIXER, PATTERNS, STRUCTURE, UNARY
from vmcjob import fwdlap

CASES: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
    **{name: lambda y, z, f=f: f(y) for name, f in {**UNARY, **STRUCTURE}.items()},
    **BINARY,
}


# JAX asks which operand equals the result, and XLA may compute either once more for that, and round
# it differently: then neither does, and there is no derivative.
CHOSEN: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
    "max": lambda y, z: jnp.where(y > z, y, z),
    "min": lambda y, z: jnp.where(y < z, y, z),
}


def electrons(n: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_primitive_of_sparse_features_agrees_with_the_hessian(name: str):
    """One- and few-electron features in, whatever comes out: sparse rules must lose nothing."""
    second = "row" if name.startswith("dot_general") else "mixed"

    def case(f: Callable[[jax.Array, jax.Array], Any]) -> Callable[[jax.Array], Any]:
        return lambda x: f(PATTERNS["row"](x), PATTERNS[second](x))

    twin = case(CHOSEN[name]) if name in CHOSEN else None
    check(case(CASES[name]), electrons(3), twin=twin)


SPARSE = (
    "broadcast_in_dim", "clamp", "concatenate", "exp", "gather", "gather_pairs", "gather_rows",
    "integer_pow", "mul", "pad", "pow_of_one", "reduce_max", "reshape", "rev", "select_n", "slice",
    "softplus", "split", "squeeze_expand_dims", "stack_behind", "tanh", "tile", "transpose",
    "unstack",
)  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
def test_a_primitive_leaves_features_of_one_electron_sparse(name: str):
    """They change along 3 of 72 directions: a dense Jacobian alone takes more memory than all."""

    def curved(x: jax.Array) -> Any:
        y = jnp.tanh(x @ jnp.asarray(MIXER))
        return jax.tree.map(jnp.sin, CASES[name](y, jnp.cos(y)))

    def second_derivatives(x: jax.Array) -> Any:
        return fwdlap.derivatives(curved)(x)[2]

    x = electrons(24)
    largest = max(leaf.nbytes for leaf in jax.tree.leaves(curved(x)))
    assert fwdlap.peak_bytes(second_derivatives, x[None]) < x.size * largest


@pytest.mark.slow
@given(
    name=st.sampled_from(sorted(CASES)),
    left=st.sampled_from(sorted(PATTERNS)),
    right=st.sampled_from(sorted(PATTERNS)),
    n=st.integers(2, 4),
    seed=st.integers(0, 100),
)
def test_any_primitive_on_any_pair_of_patterns(name: str, left: str, right: str, n: int, seed: int):
    """Which operand is sparse, windowed, unwritten or constant must not matter."""
    if "pair" in (left, right) and name in BINARY:
        left = right = "pair"
    x = electrons(n, seed)
    check(lambda x: CASES[name](PATTERNS[left](x), PATTERNS[right](x)), x, rtol=1e-8)
