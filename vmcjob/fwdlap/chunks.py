"""Batches of walkers in chunks whose Jacobians fit a byte budget."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

from vmcjob.fwdlap.cpu import is_cpu
from vmcjob.fwdlap.interpreter import open_jaxpr, variables

# Bytes that are alive between equations, before XLA fuses most of them away. On a CPU the budget
# keeps the Jacobians of a chunk near the cores' caches. It grows with the weights, which every
# chunk must read again. On an accelerator the budget only bounds memory.
CACHE_BYTES = 8 << 20
DEVICE_BYTES = 4 << 30


def over_walkers(
    fun: Callable[..., Any], budget_bytes: int | None = None, chunk_divisor: int = 1
) -> Callable[..., Any]:
    """`jax.vmap(fun)` over the leading axis, run in chunks if this saves memory.

    Args:
        fun: function of one walker, and of further arrays for each walker; any pytree of arrays.
        budget_bytes: bytes of intermediate arrays at a time; the default suits the backend.
        chunk_divisor: divides the chunk size, for a device that ran out of memory.
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
    """Number of walkers per chunk that fits the budget: at least one, at most all."""
    n = int(jnp.shape(walkers)[0])
    return _fitting(_trace(fun, walkers, *others).jaxpr, n, budget_bytes)


def _fitting(jaxpr: Any, n: int, budget_bytes: int | None) -> int:
    """Number of walkers per chunk, of n, that fits the budget if each needs a jaxpr's arrays."""
    peak = max(peak_of(jaxpr), 1)
    if budget_bytes is None and is_cpu():
        weights = sum(map(_bytes, jaxpr.constvars))
        # At least two walkers: XLA:CPU runs the loop over single walkers on one core.
        budget_bytes = max(CACHE_BYTES + weights, 2 * peak)
    elif budget_bytes is None:
        budget_bytes = DEVICE_BYTES
    fitting = min(n, max(1, budget_bytes // peak))
    # A remainder would be compiled as a second program. So prefer a divisor of n, even if it
    # exceeds the budget by up to a third.
    fair = [size for size in range(1, n + 1) if n % size == 0 and 3 * size <= 4 * fitting]
    largest = max(fair, default=1)
    return largest if 2 * largest >= fitting else -(-n // -(-n // fitting))


def peak_bytes(fun: Callable[..., Any], walkers: Any) -> int:
    """Largest number of bytes alive at once between the equations of `fun`, for one walker."""
    return peak_of(_trace(fun, walkers).jaxpr)


class _Traced(NamedTuple):
    """A traced function of one walker, which can be inspected and called without tracing again."""

    closed: jex.ClosedJaxpr
    structure: Any  # of the returned pytree

    @property
    def jaxpr(self) -> Any:
        """The jaxpr of the function."""
        return open_jaxpr(self.closed)[0]

    def __call__(self, *arrays: Array) -> Any:
        """The value of the function."""
        return jax.tree.unflatten(self.structure, jex.jaxpr_as_fun(self.closed)(*arrays))


def _trace(fun: Callable[..., Any], *batches: Any) -> _Traced:
    """Trace `fun` for one of the walkers."""
    one = [jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)) for x in batches]
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*one)
    return _Traced(closed, jax.tree.structure(shape))


def peak_of(jaxpr: Any) -> int:
    """Largest number of bytes alive at once between the equations of a jaxpr."""
    # Variables that no output needs have no last use, because XLA drops them.
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
