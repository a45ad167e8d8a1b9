"""Elementwise rules: functions of one value, sums, maxima."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Inexact

from vmcjob.fwdlap.cpu import kept
from vmcjob.fwdlap.generic import by_jvp_of_jvp
from vmcjob.fwdlap.interpreter import bind, rule_for
from vmcjob.fwdlap.node import (
    Node,
    Value,
    blocks_of,
    laplacian_of,
    make_node,
    primal_of,
    total,
)
from vmcjob.fwdlap.sparsity import disjoint, inner, merge
from vmcjob.fwdlap.windows import scale

Elements = Inexact[Array, "*shape"]
Derivatives = Callable[[Elements, Elements], tuple[Elements, Elements]]

# f'(x) and f''(x) from x and y = f(x), where this is cheaper than differentiating.
CLOSED_FORMS: dict[str, Derivatives] = {
    "exp": lambda x, y: (y, y),
    "tanh": lambda x, y: (1 - y * y, -2 * y * (1 - y * y)),
    "logistic": lambda x, y: (y * (1 - y), y * (1 - y) * (1 - 2 * y)),
    "log": lambda x, y: (1 / x, -1 / (x * x)),
    "sqrt": lambda x, y: (0.5 / y, -0.25 / (x * y)),
    "rsqrt": lambda x, y: (-0.5 * y / x, 0.75 * y / (x * x)),
    "sin": lambda x, y: (jnp.cos(x), -y),
    "cos": lambda x, y: (-jnp.sin(x), -y),
    "square": lambda x, y: (2 * x, jnp.full_like(x, 2)),
}


def chain(node: Node, out: Elements, slope: Elements, curvature: Elements | None) -> Value:
    """Elementwise f: J' = f' J,  L' = f' L + f'' sum_d J_d^2."""
    shape = node.primal.shape
    blocks = [block._replace(data=kept(block.data)) for block in disjoint(node.blocks, shape)]
    laplacian = None if node.laplacian is None else slope * node.laplacian
    if curvature is not None:
        for block in blocks:
            square = inner([block], [block], shape)
            laplacian = total(laplacian, curvature * square)
    return make_node(out, [scale(block, slope) for block in blocks], laplacian)


def by_two_jvps(fun: Callable[[Elements], Elements], node: Node) -> list[Value]:
    """An elementwise function that JAX differentiates: one tangent of ones gives f' and f''."""
    one = jnp.ones_like(node.primal)

    def slope(x: Elements) -> tuple[Elements, Elements]:
        out, first = jax.jvp(fun, (x,), (one,))
        return first, out

    first, second, out = jax.jvp(slope, (node.primal,), (one,), has_aux=True)
    return [chain(node, out, first, second)]


@rule_for(
    "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "cbrt", "erf",
    "erfc", "erf_inv", "lgamma", "digamma", "square", "bessel_i0e", "bessel_i1e",
)  # fmt: skip
def elementwise(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Elementwise functions of one operand."""
    (node,) = inputs
    closed_form = CLOSED_FORMS.get(eqn.primitive.name)
    if closed_form is None:
        return by_two_jvps(lambda x: bind(eqn, [x])[0], node)
    out = bind(eqn, [node.primal])[0]
    return [chain(node, out, *closed_form(node.primal, out))]


@rule_for("pow", "atan2", "rem", "clamp", "igamma", "igammac", "zeta", "polygamma")
def by_one_operand(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Elementwise if only one operand is differentiated and it has the output's shape."""
    live = [i for i, value in enumerate(inputs) if isinstance(value, Node)]
    node = inputs[live[0]]
    if len(live) > 1 or node.primal.shape != eqn.outvars[0].aval.shape:
        return by_jvp_of_jvp(eqn, inputs)

    def along(x: Elements) -> Elements:
        return bind(eqn, [*inputs[: live[0]], x, *inputs[live[0] + 1 :]])[0]

    return by_two_jvps(along, node)


@rule_for("integer_pow")
def integer_pow(eqn: Any, inputs: list[Value]) -> list[Value]:
    """x^n with n known: n x^(n-1) and n (n-1) x^(n-2)."""
    (node,) = inputs
    x, n = node.primal, eqn.params["y"]
    out = bind(eqn, [x])[0]
    if n == 0:
        return [out]
    curvature = None if n == 1 else n * (n - 1) * x ** (n - 2)
    return [chain(node, out, n * x ** (n - 1), curvature)]


@rule_for("abs")
def absolute(eqn: Any, inputs: list[Value]) -> list[Value]:
    """|x| of a real number has slope sign(x) and no curvature."""
    (node,) = inputs
    if jnp.iscomplexobj(node.primal):
        return by_jvp_of_jvp(eqn, inputs)
    return [chain(node, bind(eqn, [node.primal])[0], jnp.sign(node.primal), None)]


@rule_for("add", "add_any", "sub")
def add(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Add blocks that have the same directions; keep the others as separate blocks."""
    sign = -1 if eqn.primitive.name == "sub" else 1
    a, b = inputs
    out = bind(eqn, [primal_of(a), primal_of(b)])[0]
    right = blocks_of(b)
    l_right = laplacian_of(b)
    if sign < 0:
        right = tuple(block._replace(data=-block.data) for block in right)
        l_right = None if l_right is None else -l_right
    laplacian = total(laplacian_of(a), l_right)
    return [make_node(out, merge([*blocks_of(a), *right]), laplacian)]


@rule_for("optimization_barrier")
def keep(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Keep value, blocks and Laplacian of a barrier, each in its own array."""
    del eqn
    return [
        make_node(
            kept(primal_of(value)),
            [block._replace(data=kept(block.data)) for block in blocks_of(value)],
            kept(laplacian_of(value)),
        )
        for value in inputs
    ]


@rule_for("max", "min")
def extremum(eqn: Any, inputs: list[Value]) -> list[Value]:
    """The derivatives of the larger (smaller) operand; at a tie half of either, as in JAX."""
    a, b = inputs
    x, y = primal_of(a), primal_of(b)
    out = bind(eqn, [x, y])[0]
    if jnp.iscomplexobj(out):
        return by_jvp_of_jvp(eqn, inputs)
    high, low = (x, y) if eqn.primitive.name == "max" else (y, x)
    # Not out == x: XLA may compute x a second time here and round it differently.
    weight_a = 0.5 * ((high > low).astype(out.dtype) + (high >= low).astype(out.dtype))
    blocks, laplacian = [], None
    for value, weight in ((a, weight_a), (b, 1 - weight_a)):
        blocks += [scale(block, weight) for block in blocks_of(value)]
        if laplacian_of(value) is not None:
            laplacian = total(laplacian, weight * laplacian_of(value))
    return [make_node(out, merge(blocks), laplacian)]
