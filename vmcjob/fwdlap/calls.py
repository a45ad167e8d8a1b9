"""Equations that hold a jaxpr of their own: jit, remat, custom derivatives."""

from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp

from vmcjob.fwdlap.generic import by_jvp_of_jvp
from vmcjob.fwdlap.interpreter import bind, interpret, open_jaxpr, rule_for
from vmcjob.fwdlap.linalg import is_slogdet, slogdet
from vmcjob.fwdlap.node import Node, Value, is_inexact
from vmcjob.fwdlap.pointwise import by_two_jvps


@rule_for("jit", "pjit", "remat2", "checkpoint", "closed_call", "core_call")
def inline(eqn: Any, inputs: list[Value]) -> list[Value]:
    """A call is its body."""
    body = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
    return interpret(body, inputs)


@rule_for("custom_vjp_call")
def by_the_primal(eqn: Any, inputs: list[Value]) -> list[Value]:
    """A custom reverse rule says nothing about forward mode: differentiate what it computes."""
    return interpret(eqn.params["call_jaxpr"], inputs)


@rule_for("custom_jvp_call")
def by_the_custom_rule(eqn: Any, inputs: list[Value]) -> list[Value]:
    """The user's tangent rule is the derivative; element by element where the body is."""
    node = inputs[0]
    if len(inputs) == 1 and is_slogdet(eqn) and not jnp.iscomplexobj(node.primal):
        return slogdet(eqn, node)
    if len(inputs) == 1 and isinstance(node, Node) and is_elementwise(eqn):
        return by_two_jvps(lambda x: bind(eqn, [x])[0], node)
    return by_jvp_of_jvp(eqn, inputs)


# Primitives that act on each element alone as long as all their operands have one shape.
ELEMENTWISE = frozenset(
    (
        "abs", "add", "and", "atan", "cbrt", "ceil", "convert_element_type", "copy", "cos", "cosh",
        "div", "eq", "erf", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow",
        "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg",
        "not", "or", "pow", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square",
        "stop_gradient", "sub", "tan", "tanh",
    )
)  # fmt: skip


def is_elementwise(eqn: Any) -> bool:
    """Whether a call of one array maps each element to one element of the output."""
    avals = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if len(avals) != 2 or avals[0].shape != avals[1].shape:
        return False
    if any(jnp.issubdtype(aval.dtype, jnp.complexfloating) for aval in avals):
        return False
    return is_inexact(avals[0]) and _is_elementwise_body(eqn.params["call_jaxpr"], avals[0].shape)


def _is_elementwise_body(closed: Any, shape: tuple[int, ...]) -> bool:
    jaxpr, consts = open_jaxpr(closed)
    if any(getattr(const, "shape", ()) != () for const in consts):
        return False
    for eqn in jaxpr.eqns:
        atoms = [*eqn.invars, *eqn.outvars]
        if any(not isinstance(v, jex.Literal) and v.aval.shape not in ((), shape) for v in atoms):
            return False
        name = eqn.primitive.name
        if name in ("jit", "pjit"):
            if not _is_elementwise_body(eqn.params["jaxpr"], shape):
                return False
        elif name == "broadcast_in_dim":
            if eqn.invars[0].aval.shape not in ((), shape):
                return False
        elif name not in ELEMENTWISE:
            return False
    return True
