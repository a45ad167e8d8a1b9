"""Public functions: `laplacian`, `derivatives`, `lap`, `lap_partial` and the symbolic zero."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from vmcjob.fwdlap.chunks import DEVICE_BYTES, peak_of
from vmcjob.fwdlap.generic import dense_jacobian, dense_laplacian, uniform_blocks
from vmcjob.fwdlap.interpreter import bind, interpret, open_jaxpr
from vmcjob.fwdlap.node import Block, Node, Value, is_inexact, make_node

ScalarFunction = Callable[[Float[Array, "*point"]], Float[Array, ""]]


class Jet(NamedTuple):
    """A scalar function at a point, with its first and second derivatives."""

    value: Float[Array, ""]
    gradient: Float[Array, "*point"]
    laplacian: Float[Array, ""]


class SymbolicZero(NamedTuple):
    """A derivative that is known to be zero at trace time; computing with it costs nothing."""

    shape: tuple[int, ...]
    dtype: Any


jax.tree_util.register_static(SymbolicZero)


def zero_tangent_from_primal(primal: Any) -> SymbolicZero:
    """The symbolic zero that fits `primal`, as a Jacobian or as a Laplacian."""
    array = jnp.asarray(primal)
    return SymbolicZero(array.shape, array.dtype)


def lap(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    jacobians: Sequence[Any],
    laplacians: Sequence[Any],
) -> tuple[Any, Any, Any]:
    """Value, Jacobian and Laplacian of `fun` in one forward pass.

    Args:
        fun: takes arrays, returns any pytree of arrays.
        primals: the arrays at which `fun` is evaluated.
        jacobians: one per primal, with the directions along a leading axis, or a symbolic zero.
        laplacians: one per primal, of the primal's shape, or a symbolic zero.

    Returns value, Jacobian and Laplacian of the output, each in the structure of the output. If an
    output depends on no input, its derivatives are zeros.
    """
    primals = [jnp.asarray(primal) for primal in primals]
    nodes = [_seed(*triple) for triple in zip(primals, jacobians, laplacians, strict=True)]
    n = next((j.shape[0] for j in jacobians if not isinstance(j, SymbolicZero)), 0)
    return _run(fun, primals, nodes, n)


def _run(
    fun: Callable[..., Any], primals: Sequence[Any], nodes: Sequence[Value], n: int
) -> tuple[Any, Any, Any]:
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*primals)
    harvest = [_harvest(output, n) for output in interpret(closed, nodes)]
    structure = jax.tree.structure(shape)
    value, jacobian, laplacian = (
        jax.tree.unflatten(structure, [triple[i] for triple in harvest]) for i in range(3)
    )
    return value, jacobian, laplacian


def _seed(primal: jax.Array, jacobian: Any, laplacian: Any) -> Value:
    """The node of one primal; TypeError where its derivatives cannot be."""
    has_jacobian = not isinstance(jacobian, SymbolicZero)
    has_laplacian = not isinstance(laplacian, SymbolicZero)
    if not is_inexact(primal):
        if has_jacobian or has_laplacian:
            _require_inexact(primal)
        return primal
    if has_jacobian and jnp.shape(jacobian)[1:] != primal.shape:
        _refuse_shape("Jacobian", jacobian, ("n", *primal.shape))
    if has_laplacian and jnp.shape(laplacian) != primal.shape:
        _refuse_shape("Laplacian", laplacian, primal.shape)
    blocks: tuple[Block, ...] = ()
    if has_jacobian:
        data = jnp.asarray(jacobian, primal.dtype)
        blocks = uniform_blocks(data, np.arange(len(data)))
    return make_node(
        primal, blocks, jnp.asarray(laplacian, primal.dtype) if has_laplacian else None
    )


def _require_inexact(x: Any) -> None:
    """TypeError for an argument without derivatives; a gradient of zeros would be no answer."""
    if not is_inexact(x):
        raise TypeError(
            f"there are no derivatives by an argument of dtype {jnp.result_type(x)}, shape "
            f"{jnp.shape(x)}; expected floating-point numbers"
        )


def _refuse_shape(name: str, derivative: Any, wanted: tuple[int | str, ...]) -> None:
    shape = ", ".join(map(str, wanted))
    raise TypeError(f"a {name} of shape {jnp.shape(derivative)}; expected ({shape})")


def _harvest(output: Value, n: int) -> tuple[Any, Any, Any]:
    node = output if isinstance(output, Node) else Node(jnp.asarray(output), (), None)
    return node.primal, dense_jacobian(node, np.arange(n)), dense_laplacian(node)


def lap_partial(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    example_jacobians: Sequence[Any],
    example_laplacians: Sequence[Any],
) -> tuple[Any, Callable[[Sequence[Any], Sequence[Any]], tuple[Any, Any]]]:
    """The value now, Jacobian and Laplacian later, for any slice of the directions.

    Returns the value of `fun` and a function `(jacobians, laplacians) -> (jacobians_out,
    laplacians_out)`. The examples only give shapes and symbolic zeros. Intermediate results that
    depend on the primals alone are computed once, here.
    """
    primals = [jnp.asarray(primal) for primal in primals]
    examples = (tuple(example_jacobians), tuple(example_laplacians))

    def whole(arrays: Any, derivatives: Any) -> Any:
        return lap(fun, arrays, *derivatives)

    closed, shape = jax.make_jaxpr(whole, return_shape=True)(primals, examples)
    known, later = _split(closed, primals)
    leaves, structure = jax.tree.flatten(shape)
    n_value = len(jax.tree.leaves(shape[0]))

    def rest(jacobians: Sequence[Any], laplacians: Sequence[Any]) -> tuple[Any, Any]:
        out = later(jax.tree.leaves((tuple(jacobians), tuple(laplacians))))
        return jax.tree.unflatten(structure, out)[1:]

    values = [*known[:n_value], *[None] * (len(leaves) - n_value)]
    return jax.tree.unflatten(structure, values)[0], rest


def _split(closed: Any, given: Sequence[Any]) -> tuple[list[Any], Callable[[list], list]]:
    """Evaluate the equations that depend on `given` alone; return their outputs and the rest."""
    jaxpr, consts = open_jaxpr(closed)
    env = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, given, strict=False))
    waiting = jaxpr.invars[len(given) :]
    remaining = []

    def read(scope: dict, atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else scope.get(atom)

    for eqn in jaxpr.eqns:
        inputs = [read(env, atom) for atom in eqn.invars]
        if any(value is None for value in inputs):
            remaining.append(eqn)
        else:
            env.update(zip(eqn.outvars, bind(eqn, inputs), strict=True))

    def later(leaves: list[Any]) -> list[Any]:
        scope = {**env, **dict(zip(waiting, leaves, strict=True))}
        for eqn in remaining:
            inputs = [read(scope, atom) for atom in eqn.invars]
            scope.update(zip(eqn.outvars, bind(eqn, inputs), strict=True))
        return [read(scope, atom) for atom in jaxpr.outvars]

    return [read(env, atom) for atom in jaxpr.outvars], later


def derivatives(fun: Callable[[jax.Array], Any]) -> Callable[[jax.Array], tuple[Any, Any, Any]]:
    """Value, dense Jacobian and Laplacian of any function of one array.

    The Jacobian's leading axis runs over the elements of the array. The input's Jacobian is known
    to be the identity at trace time, so only elements that `fun` mixes are computed densely.
    Raises TypeError for an array of integers or Booleans.
    """

    def push(x: jax.Array) -> tuple[Any, Any, Any]:
        x = jnp.asarray(x)
        _require_inexact(x)
        table = np.arange(x.size).reshape(1, *x.shape)
        seed = make_node(x, [Block(jnp.ones((1,) * (x.ndim + 1), x.dtype), table)], None)
        return _run(fun, [x], [seed], x.size)

    return push


def laplacian(
    fun: ScalarFunction, budget_bytes: int | None = None
) -> Callable[[Float[Array, "*point"]], Jet]:
    """Laplacian and gradient of a scalar function of one array of any shape.

    If all directions together need more than `budget_bytes` of intermediate arrays, they are taken
    slice by slice, as many at a time as fit. A slice is computed densely. The default budget is
    `DEVICE_BYTES`, the share of a device that one walker may take.

    Raises TypeError for an argument that is no array of floating-point or complex numbers, and for
    a function that is not scalar.
    """
    push = derivatives(fun)
    budget = DEVICE_BYTES if budget_bytes is None else budget_bytes

    def jet(x: Any) -> Jet:  # whatever a caller brings; refused by name if no array
        x = _as_array(x)
        closed, (value, *_) = jax.make_jaxpr(push, return_shape=True)(x)
        _require_scalar(value)
        peak = peak_of(open_jaxpr(closed)[0])
        length = x.size if peak <= budget else _slice_length(fun, x, budget, peak)
        if length == x.size:
            value, jacobian, second = jex.jaxpr_as_fun(closed)(x)
        else:
            value, jacobian, second = _by_slices(fun, x, length)
        return Jet(value, jacobian.reshape(x.shape), second)

    return jet


def _as_array(x: Any) -> Array:
    """The argument as an array; TypeError for a dictionary or any other tree of arrays."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError):
        raise TypeError(
            f"expected one array as the argument, got a {type(x).__name__}: for any pytree of "
            "arrays, use `derivatives`"
        ) from None


def _require_scalar(value: Any) -> None:
    """TypeError unless a function's value, known by its shape, is one floating-point number."""
    if not isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(
            f"expected a scalar function; this one returns a {type(value).__name__}: "
            "for any pytree of arrays, use `derivatives`"
        )
    if value.shape or not is_inexact(value):
        raise TypeError(
            f"expected a scalar function of floating-point numbers; this one returns dtype "
            f"{value.dtype}, shape {value.shape}: for arrays, use `derivatives`"
        )


def _slice_length(fun: ScalarFunction, x: Float[Array, "*point"], budget: int, peak: int) -> int:
    """Number of directions per slice that fits the budget.

    All directions, if a single direction needs as much memory as all of them together.
    """
    zero = zero_tangent_from_primal(x)
    alone = jax.make_jaxpr(lambda d: lap(fun, (x,), (d,), (zero,)))(_directions(x, 0, 1))
    each = peak_of(open_jaxpr(alone)[0])
    if each >= peak:
        return x.size
    fitting = max(1, budget // max(each, 1))
    return max(n for n in range(1, x.size + 1) if x.size % n == 0 and n <= fitting)


def _by_slices(
    fun: ScalarFunction, x: Float[Array, "*point"], length: int
) -> tuple[Float[Array, ""], Float[Array, "slice {length}"], Float[Array, ""]]:
    """Value, gradient and Laplacian, computed from slices of the directions of equal length."""
    zero = zero_tangent_from_primal(x)
    value, push = lap_partial(fun, (x,), (_directions(x, 0, length),), (zero,))

    def along(start: Any) -> tuple[Any, Any]:
        return push((_directions(x, start, length),), (zero,))

    jacobian, second = jax.lax.map(along, jnp.arange(0, x.size, length))
    return value, jacobian, jnp.sum(second, axis=0)


def _directions(
    x: Float[Array, "*point"], start: ArrayLike, length: int
) -> Float[Array, " {length} *point"]:
    """Unit vectors of `length` consecutive elements of x, of shape (length, shape of x)."""
    rows = jnp.asarray(start) + jnp.arange(length)
    return (rows[:, None] == jnp.arange(x.size)).astype(x.dtype).reshape(length, *x.shape)
