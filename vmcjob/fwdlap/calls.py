"""Equations that stand for others: jit, remat, custom derivatives, and shorthands."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from vmcjob.fwdlap.generic import by_jvp_of_jvp
from vmcjob.fwdlap.interpreter import interpret, open_jaxpr, rule_for
from vmcjob.fwdlap.linalg import is_slogdet, slogdet
from vmcjob.fwdlap.node import Value, is_inexact
from vmcjob.fwdlap.pointwise import by_one_operand


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
    return by_one_operand(eqn, inputs) if is_elementwise(eqn) else by_jvp_of_jvp(eqn, inputs)


def _split(x: jax.Array, *, sizes: Sequence[int], axis: int) -> list[jax.Array]:
    stops = np.cumsum(sizes)
    return [
        lax.slice_in_dim(x, stop - n, stop, axis=axis) for n, stop in zip(sizes, stops, strict=True)
    ]


def _stack(*xs: jax.Array, axis: int) -> list[jax.Array]:
    return [lax.concatenate([lax.expand_dims(x, [axis]) for x in xs], axis)]


def _unstack(x: jax.Array, *, axis: int) -> list[jax.Array]:
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


SHORTHANDS: dict[str, Callable[..., list[jax.Array]]] = {
    "split": _split,
    "stack": _stack,
    "unstack": _unstack,
}


@rule_for(*SHORTHANDS)
def spell_out(eqn: Any, inputs: list[Value]) -> list[Value]:
    """A shorthand is the equations it saves, whose rules keep what is sparse."""
    spelt = partial(SHORTHANDS[eqn.primitive.name], **eqn.params)
    return interpret(jax.make_jaxpr(spelt)(*[v.aval for v in eqn.invars]), inputs)


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
    """Whether a call maps each element to one of its only output; operands may be scalars."""
    avals = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    shape = avals[-1].shape
    if len(eqn.outvars) != 1 or any(aval.shape not in ((), shape) for aval in avals):
        return False
    if any(jnp.issubdtype(aval.dtype, jnp.complexfloating) for aval in avals):
        return False
    return is_inexact(avals[-1]) and _is_elementwise_body(eqn.params["call_jaxpr"], shape)


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
