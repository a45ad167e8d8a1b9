"""Dense layers of a wave function, whose scores are products of two small factors.

The score of a layer's kernel is the last product of the backward pass,

    ∂ log|ψ|/∂W = Σ_k x_k g_kᵀ,

summed over the rows k that a walker sends through the layer (its electrons, its pairs, or one row).
x_k is the input of row k, and g_k the derivative of log|ψ| with respect to its output. So the
scalar product of two walkers' scores of W is Σ_kl (x_k · x'_l) (g_k · g'_l). If rows are few and W
is large, this is cheaper than using the scores themselves (arXiv:2206.08720, section 3). The same
holds for other products with scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.contracts import LogPsi, Params

Leaf = Float[Array, "..."]
"""One of the arrays of parameters, or an array of the same shape."""

MIN_GAIN = 4.0
"""Smallest ratio of the sizes of score and factors at which a kernel's score stays factors."""


class Factors(NamedTuple):
    """The factors of one kernel's score Σ_k a_k b_kᵀ, for one walker or a batch of walkers."""

    a: Float[Array, "*walker row left"]
    b: Float[Array, "*walker row right"]


@dataclass(frozen=True)
class Kernel:
    """An array of parameters, and the matrix whose score is a product of two factors.

    Args:
        leaf: index of the array.
        axes: axes of the product: those of a, then those of b.
        order: permutation from these axes to the order of the array.
        shape: shape of the matrix.
    """

    leaf: int
    axes: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, int]

    def to_matrix(self, leaf: Leaf) -> Float[Array, "left right"]:
        """An array, reshaped to the matrix."""
        back = sorted(range(leaf.ndim), key=self.order.__getitem__)
        return leaf.transpose(back).reshape(self.shape)

    def to_leaf(self, matrix: Float[Array, "left right"]) -> Leaf:
        """The inverse of `to_matrix`."""
        return matrix.reshape(self.axes).transpose(self.order)


class SplitGradient(NamedTuple):
    """∂ log|ψ|/∂θ of one walker, with some products left as factors."""

    kernels: tuple[Kernel, ...]
    evaluate: Callable[[Params, Array], tuple[list[Leaf], list[Factors]]]
    """Gradients of all other arrays, and the factors of the kernels."""


def split_gradient(log_psi: LogPsi, params: Params, r: Float[Array, "elec 3"]) -> SplitGradient:
    """The gradient of one walker; products that are larger than their factors are not computed.

    Args:
        log_psi: one walker's log|ψ|.
        params, r: arrays, or shapes to trace with; nothing is computed.
    """
    closed = jax.make_jaxpr(jax.grad(log_psi))(params, r)
    jaxpr, consts = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    products = [product for product in _products(jaxpr) if product.is_larger]
    left = {product.kernel.leaf for product in products}
    rest = [var for leaf, var in enumerate(jaxpr.outvars) if leaf not in left]
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    outputs = rest + [var for product in products for var in product.factors]
    run = jex.jaxpr_as_fun(
        jex.ClosedJaxpr(
            jex.Jaxpr((), inputs, outputs, jaxpr.eqns, jaxpr.effects, jaxpr.debug_info), ()
        )
    )

    def evaluate(params: Params, r: Array) -> tuple[list[Leaf], list[Factors]]:
        found = run(*consts, *jax.tree.leaves(params), r)
        factors = iter(found[len(rest) :])
        return found[: len(rest)], [
            Factors(*(_as_rows(next(factors), axes) for axes in product.rows))
            for product in products
        ]

    return SplitGradient(tuple(product.kernel for product in products), evaluate)


class _Product(NamedTuple):
    """The last equation of the backward pass for one kernel."""

    kernel: Kernel
    factors: tuple[Any, Any]  # variables of a jaxpr have no public type
    rows: tuple[tuple[int, ...], tuple[int, ...]]  # the summed axes of each factor

    @property
    def is_larger(self) -> bool:
        """Whether the product is larger than its factors."""
        n_rows = math.prod(self.factors[0].aval.shape[axis] for axis in self.rows[0])
        return math.prod(self.kernel.shape) > MIN_GAIN * n_rows * sum(self.kernel.shape)


def _products(jaxpr: Any) -> list[_Product]:
    """The outputs that are products of two matrices, transposed or not."""
    origins = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    found = []
    for leaf, var in enumerate(jaxpr.outvars):
        order = tuple(range(len(var.aval.shape)))
        eqn = _origin(origins, var)
        if eqn is not None and eqn.primitive.name == "transpose":
            order = tuple(eqn.params["permutation"])
            eqn = _origin(origins, eqn.invars[0])
        if eqn is not None and eqn.primitive.name == "dot_general" and _is_of_two_matrices(eqn):
            found.append(_product(leaf, eqn, order))
    return found


def _origin(origins: dict[Any, Any], atom: Any) -> Any:
    return None if isinstance(atom, jex.Literal) else origins.get(atom)


def _is_of_two_matrices(eqn: Any) -> bool:
    _, batched = eqn.params["dimension_numbers"]
    return not any(batched) and not any(isinstance(atom, jex.Literal) for atom in eqn.invars)


def _product(leaf: int, eqn: Any, order: tuple[int, ...]) -> _Product:
    rows, _ = eqn.params["dimension_numbers"]
    left, right = (
        tuple(n for axis, n in enumerate(var.aval.shape) if axis not in summed)
        for var, summed in zip(eqn.invars, rows, strict=True)
    )
    kernel = Kernel(leaf, left + right, order, (math.prod(left), math.prod(right)))
    return _Product(kernel, tuple(eqn.invars), (tuple(rows[0]), tuple(rows[1])))


def _as_rows(x: Array, rows: tuple[int, ...]) -> Float[Array, "row free"]:
    """The array as a matrix: all summed axes first, as one axis, then all other axes."""
    free = [axis for axis in range(x.ndim) if axis not in rows]
    n_rows = math.prod(x.shape[axis] for axis in rows)
    return x.transpose(*rows, *free).reshape(n_rows, -1)
