"""Rules for products: mul, div, convolutions."""

from typing import Any

import jax
import jax.numpy as jnp

from vmcjob.fwdlap.generic import differentiate_once, uniform_blocks
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
from vmcjob.fwdlap.sparsity import directions_of, inner, merge, uniform
from vmcjob.fwdlap.windows import expand, scale


def _times(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a * b


@rule_for("mul")
def multiply(eqn: Any, inputs: list[Value]) -> list[Value]:
    """J' = J_a b + a J_b,  L' = L_a b + a L_b + 2 sum_d J_a J_b."""
    a, b = inputs
    x, y = primal_of(a), primal_of(b)
    out = bind(eqn, [x, y])[0]
    blocks = [scale(block, y) for block in blocks_of(a)]
    blocks += [scale(block, x) for block in blocks_of(b)]
    laplacian = total(_times(laplacian_of(a), y), _times(x, laplacian_of(b)))
    cross = _square(a) if a is b else inner(blocks_of(a), blocks_of(b), out.shape)
    laplacian = total(laplacian, _times(2, cross))
    if laplacian is not None:
        laplacian = jnp.broadcast_to(laplacian, out.shape)
    return [make_node(out, merge(blocks), laplacian)]


def _square(a: Node) -> Any:
    return inner(a.blocks, a.blocks, a.primal.shape)


@rule_for("div")
def divide(eqn: Any, inputs: list[Value]) -> list[Value]:
    """From y b = a:  J' = (J_a - y J_b) / b,  L' = (L_a - y L_b - 2 sum_d J' J_b) / b."""
    a, b = inputs
    denominator = primal_of(b)
    out = bind(eqn, [primal_of(a), denominator])[0]
    reciprocal = 1 / denominator
    blocks = [scale(block, reciprocal) for block in blocks_of(a)]
    laplacian = laplacian_of(a)
    if isinstance(b, Node):
        blocks = merge([*blocks, *[scale(block, -out * reciprocal) for block in b.blocks]])
        cross = inner(blocks, b.blocks, out.shape)
        laplacian = total(laplacian, _times(-out, b.laplacian), _times(-2, cross))
    if laplacian is not None:
        laplacian = jnp.broadcast_to(laplacian * reciprocal, out.shape)
    return [make_node(out, blocks, laplacian)]


@rule_for("conv_general_dilated")
def convolve(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Linear in each operand; both operands get the same directions."""
    if not all(isinstance(value, Node) for value in inputs):
        return differentiate_once(lambda *arrays: bind(eqn, arrays), inputs)
    a, b = inputs
    out = bind(eqn, [a.primal, b.primal])[0]
    directions = directions_of([*a.blocks, *b.blocks])
    left, right = (
        expand(uniform(node.blocks, node.primal.shape, directions), node.primal.shape)
        for node in (a, b)
    )

    def fun(x: Any, y: Any) -> Any:
        return bind(eqn, [x, y])[0]

    jacobian = jax.vmap(lambda p, q: fun(p, b.primal) + fun(a.primal, q))(left, right)
    cross = 2 * jnp.sum(jax.vmap(fun)(left, right), axis=0)
    terms = [cross]
    if a.laplacian is not None:
        terms.append(fun(a.laplacian, b.primal))
    if b.laplacian is not None:
        terms.append(fun(a.primal, b.laplacian))
    return [make_node(out, uniform_blocks(jacobian, directions), total(*terms))]
