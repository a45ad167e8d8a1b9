"""What the devices of a calculation say to one another, read off a program: none has to run."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from vmcjob.vmc import devices

OF_JAX = {
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "pmin": "all-reduce",
    "pmax": "all-reduce",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "ppermute": "collective-permute",
    "reduce_scatter": "reduce-scatter",
    "psum_scatter": "reduce-scatter",
}
"""The primitives of JAX that talk to other devices, by XLA's names."""
KINDS = "|".join(sorted(set(OF_JAX.values())))
BYTES = {"pred": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}


class Collective(NamedTuple):
    """One operation of all devices."""

    kind: str  # in XLA's words
    n_bytes: int  # of what every device has after it
    is_in_loop: bool  # and so done as often as the loop goes round

    def sent(self, n_devices: int) -> float:
        """Bytes that a device sends, where devices are a ring and each link is used at once."""
        both_ways = 2 if self.kind == "all-reduce" else 1
        return both_ways * self.n_bytes * (n_devices - 1) / n_devices


class Tracing:
    """In the place of a program on all devices: it is traced for so many, which need not exist."""

    def __init__(self, fn: Callable[..., Any], n_devices: int) -> None:
        """Of one device."""
        self._make = jax.make_jaxpr(fn, axis_env=[(devices.AXIS, n_devices)])

    def __call__(self, sliced: Any, shared: Any) -> tuple[list[Collective], None]:
        """Of arguments of one device, behind an axis."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), sliced)
        traced = self._make(shapes, jax.tree.map(jnp.asarray, shared))
        return [*of_equations(traced.jaxpr)], None


def of_equations(jaxpr: Any, is_in_loop: bool = False) -> Iterator[Collective]:
    """The collectives of a traced program, also of those that it calls."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in OF_JAX:
            sizes = [out.aval.size * out.aval.dtype.itemsize for out in eqn.outvars]
            yield Collective(OF_JAX[name], sum(sizes), is_in_loop)
        for inner in jax.tree.leaves(eqn.params, is_leaf=_is_program):
            if _is_program(inner):
                looped = is_in_loop or name in ("while", "scan")
                yield from of_equations(getattr(inner, "jaxpr", inner), looped)


def _is_program(x: Any) -> bool:
    return isinstance(x, jex.Jaxpr | jex.ClosedJaxpr)


def of_compiled(text: str) -> list[Collective]:
    """The collectives of a compiled program, from XLA's text of it."""
    blocks = dict(re.findall(r"^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    looped = _reached(blocks, set(re.findall(r"\b(?:body|condition)=%?([\w.-]+)", text)))
    found = []
    for name, block in blocks.items():
        for shapes, kind in re.findall(rf"^.*? = (.+?) ({KINDS})(?:-start)?\(", block, re.M):
            found.append(Collective(kind, _bytes(shapes), name in looped))
    return found


def _reached(blocks: dict[str, str], names: set[str]) -> set[str]:
    """Parts of a program that some of them lead to, these included."""
    found: set[str] = set()
    while names:
        found |= names
        used = {used for name in names for used in re.findall(r"=\{?%?([\w.-]+)", blocks[name])}
        names = (used & blocks.keys()) - found
    return found


def _bytes(shapes: str) -> int:
    total = 0
    for dtype, axes in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
        n = 1
        for axis in filter(None, axes.split(",")):
            n *= int(axis)
        total += n * BYTES[dtype]
    return total
