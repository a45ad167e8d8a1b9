"""Walkers by the chunk: as many at a time as keep their Jacobians in a byte budget."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

from vmcjob.fwdlap.interpreter import open_jaxpr, variables

# What is live between equations, before XLA fuses most of it away. On a CPU the budget keeps
# the Jacobians of a chunk near the cores' caches, and is the larger the more weights every chunk
# must read anew; on an accelerator it only bounds memory.
CACHE_BYTES = 8 << 20
DEVICE_BYTES = 4 << 30


def over_walkers(
    fun: Callable[..., Any], budget_bytes: int | None = None, chunk_divisor: int = 1
) -> Callable[..., Any]:
    """`jax.vmap(fun)` over the leading axis, run chunk after chunk where that saves memory.

    Args:
        fun: of one walker, and of what else there is for each; any pytree of arrays.
        budget_bytes: of intermediate arrays at a time; by default what suits the backend.
        chunk_divisor: makes the chunks smaller than that, for a device that had no room for them.
    """

    def batch(walkers: Shaped[Array, "walker ..."], *others: Shaped[Array, "walker ..."]) -> Any:
        traced = _trace(fun, walkers, *others)
        n = max(1, _fitting(traced.jaxpr, len(walkers), budget_bytes) // chunk_divisor)
        if n >= len(walkers):
            return jax.vmap(traced)(walkers, *others)
        return jax.lax.map(lambda one: traced(*one), (walkers, *others), batch_size=n)

    return batch


def chunk_size(
    fun: Callable[..., Any], walkers: Any, *others: Any, budget_bytes: int | None = None
) -> int:
    """How many walkers at a time fit the budget, at least one and at most all."""
    n = int(jnp.shape(walkers)[0])
    return _fitting(_trace(fun, walkers, *others).jaxpr, n, budget_bytes)


def _fitting(jaxpr: Any, n: int, budget_bytes: int | None) -> int:
    """How many of n walkers at a time fit the budget, each with the arrays of a jaxpr."""
    peak = max(peak_of(jaxpr), 1)
    if budget_bytes is None and jax.default_backend() == "cpu":
        weights = sum(map(_bytes, jaxpr.constvars))
        # Two at least: XLA:CPU runs the loop over single walkers on one core.
        budget_bytes = max(CACHE_BYTES + weights, 2 * peak)
    elif budget_bytes is None:
        budget_bytes = DEVICE_BYTES
    fitting = min(n, max(1, budget_bytes // peak))
    # A rest would be compiled as a second program: best is a divisor, if need be a bit above.
    fair = [size for size in range(1, n + 1) if n % size == 0 and 3 * size <= 4 * fitting]
    largest = max(fair, default=1)
    return largest if 2 * largest >= fitting else -(-n // -(-n // fitting))


def peak_bytes(fun: Callable[..., Any], walkers: Any) -> int:
    """The most bytes alive at once between the equations of `fun` for one of the walkers."""
    return peak_of(_trace(fun, walkers).jaxpr)


class _Traced(NamedTuple):
    """A function of one walker, traced: it can be looked at and called, and is not traced again."""

    closed: jex.ClosedJaxpr
    structure: Any  # of what it returns

    @property
    def jaxpr(self) -> Any:
        """Its equations."""
        return open_jaxpr(self.closed)[0]

    def __call__(self, *arrays: Array) -> Any:
        """What the function returns."""
        return jax.tree.unflatten(self.structure, jex.jaxpr_as_fun(self.closed)(*arrays))


def _trace(fun: Callable[..., Any], *batches: Any) -> _Traced:
    """`fun` of one of the walkers."""
    one = [jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)) for x in batches]
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*one)
    return _Traced(closed, jax.tree.structure(shape))


def peak_of(jaxpr: Any) -> int:
    """The most bytes alive at once between equations."""
    # What no output needs, XLA drops: it has no last use.
    last = {atom: len(jaxpr.eqns) for atom in variables(jaxpr.outvars)}
    for i, eqn in reversed([*enumerate(jaxpr.eqns)]):
        if any(atom in last for atom in eqn.outvars):
            last.update({atom: i for atom in variables(eqn.invars) if atom not in last})
    expiring: dict[int, list[Any]] = {}
    for atom, i in last.items():
        expiring.setdefault(i, []).append(atom)
    own = {atom for eqn in jaxpr.eqns for atom in eqn.outvars}
    alive = peak = 0
    for i, eqn in enumerate(jaxpr.eqns):
        alive += sum(_bytes(atom) for atom in eqn.outvars if atom in last)
        peak = max(peak, alive)
        alive -= sum(_bytes(atom) for atom in expiring.get(i, ()) if atom in own)
    return peak


def _bytes(atom: Any) -> int:
    aval = atom.aval
    if not isinstance(getattr(aval, "dtype", None), np.dtype):
        return 0
    return int(np.prod(aval.shape, dtype=np.int64)) * aval.dtype.itemsize
