"""Rules for calls: jit, remat, custom derivatives, and shorthands (split, stack, unstack)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from vmcjob.fwdlap.generic import by_jvp_of_jvp
from vmcjob.fwdlap.interpreter import bind, interpret, open_jaxpr, rule_for
from vmcjob.fwdlap.linalg import is_slogdet, slogdet
from vmcjob.fwdlap.node import Value, is_inexact
from vmcjob.fwdlap.pointwise import by_one_operand


@rule_for("jit", "pjit", "remat2", "checkpoint", "closed_call", "core_call")
def inline(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Interpret the body of the call."""
    body = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
    return interpret(body, inputs)


@rule_for("custom_vjp_call")
def by_the_primal(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Differentiate the function itself: a custom reverse rule has no forward-mode derivative."""
    return interpret(eqn.params["call_jaxpr"], inputs)


@rule_for("custom_jvp_call")
def by_the_custom_rule(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Apply the user's tangent rule, element by element if the function acts element by element."""
    node = inputs[0]
    if len(inputs) == 1 and is_slogdet(eqn):
        return slogdet(eqn, node)
    return by_one_operand(eqn, inputs) if is_elementwise(eqn) else by_jvp_of_jvp(eqn, inputs)


def _split(x: jax.Array, *, sizes: Sequence[int | np.integer], axis: int) -> list[jax.Array]:
    stops = np.cumsum(np.array(sizes))
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
    """Replace a shorthand by the equations that it stands for; their rules keep blocks sparse."""
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


def is_elementwise(eqn: Any, within: tuple[str, ...] = ()) -> bool:
    """Whether a call and its tangent rule map each element to one element of their only output.

    Operands may be scalars. `within` lists the calls whose rules led here, because a rule may call
    its own function again.
    """
    avals = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    shape = avals[-1].shape
    if len(eqn.outvars) != 1 or any(aval.shape not in ((), shape) for aval in avals):
        return False
    if any(jnp.issubdtype(aval.dtype, jnp.complexfloating) for aval in avals):
        return False
    text = str(eqn.params["call_jaxpr"])
    if text in within:
        return True
    bodies = (eqn.params["call_jaxpr"], _tangent_rule(eqn))
    return is_inexact(avals[-1]) and all(
        _is_elementwise_body(body, shape, (*within, text)) for body in bodies
    )


def _tangent_rule(eqn: Any) -> Any:
    """The jaxpr of the user's tangent rule."""
    avals = [v.aval for v in eqn.invars]
    live = [i for i, aval in enumerate(avals) if is_inexact(aval)]

    def tangent(arrays: list[Any], directions: list[Any]) -> Any:
        def fun(*moved: Any) -> Any:
            given = dict(zip(live, moved, strict=True))
            return bind(eqn, [given.get(i, array) for i, array in enumerate(arrays)])[0]

        return jax.jvp(fun, [arrays[i] for i in live], directions)[1]

    return jax.make_jaxpr(tangent)(avals, [avals[i] for i in live])


def _is_elementwise_body(closed: Any, shape: tuple[int, ...], within: tuple[str, ...]) -> bool:
    jaxpr, consts = open_jaxpr(closed)
    if any(getattr(const, "shape", ()) != () for const in consts):
        return False
    return all(_acts_on_elements(eqn, shape, within) for eqn in jaxpr.eqns)


def _acts_on_elements(eqn: Any, shape: tuple[int, ...], within: tuple[str, ...]) -> bool:
    atoms, name = [*eqn.invars, *eqn.outvars], eqn.primitive.name
    if any(not isinstance(v, jex.Literal) and v.aval.shape not in ((), shape) for v in atoms):
        return False
    if name in ("jit", "pjit"):
        return _is_elementwise_body(eqn.params["jaxpr"], shape, within)
    if name == "custom_jvp_call":
        return is_elementwise(eqn, within)
    return name == "broadcast_in_dim" or name in ELEMENTWISE
