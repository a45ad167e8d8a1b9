"""Interpreter of a jaxpr: carries (value, Jacobian, Laplacian) from equation to equation."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from vmcjob.fwdlap.node import Block, Node, Value, primal_of
from vmcjob.fwdlap.windows import widen

Rule = Callable[[Any, list[Value]], list[Value]]
RULES: dict[str, Rule] = {}

# Index tables and masks up to this size are computed while tracing, so that rules can read them.
MAX_FOLDED = 1 << 16


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule `(equation, inputs) -> outputs` for primitives by name."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def bind(eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate one equation on bare arrays."""
    if eqn.primitive.name in ("custom_jvp_call", "custom_vjp_call"):
        return _bind_through_a_jaxpr(eqn, inputs)
    out = eqn.primitive.bind(*inputs, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _bind_through_a_jaxpr(eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a custom_jvp or custom_vjp call, which only JAX can rebuild from its parameters."""
    template = jax.make_jaxpr(lambda: ())()
    core = getattr(template, "jaxpr", template)
    slots = [i for i, v in enumerate(eqn.invars) if not isinstance(v, jex.Literal)]
    fresh = dict.fromkeys(eqn.invars[i] for i in slots)
    jaxpr = jex.Jaxpr((), list(fresh), list(eqn.outvars), [eqn], eqn.effects, core.debug_info)
    given = {eqn.invars[i]: inputs[i] for i in slots}
    return list(jex.jaxpr_as_fun(jex.ClosedJaxpr(jaxpr, ()))(*[given[v] for v in fresh]))


# Elementwise primitives that accept scalars and axes of length 1 beside written-out partners.
BROADCASTING = frozenset(
    ("add", "add_any", "sub", "mul", "div", "max", "min", "pow", "rem", "atan2", "complex")
)


def in_full(value: Value, shape: tuple[int, ...]) -> Value:
    """A Node broadcast to the shape of its partners, so that a rule meets one shape only."""
    if not isinstance(value, Node) or value.primal.shape == shape:
        return value
    ones = (1,) * (len(shape) - value.primal.ndim)
    blocks = []
    for block in (widen(block, value.primal.shape) for block in value.blocks):
        data = block.data.reshape(len(block.data), *ones, *block.data.shape[1:])
        table = block.table.reshape(len(block.table), *ones, *block.table.shape[1:])
        blocks.append(Block(data, table))
    laplacian = None if value.laplacian is None else jnp.broadcast_to(value.laplacian, shape)
    return Node(jnp.broadcast_to(value.primal, shape), tuple(blocks), laplacian)


def open_jaxpr(closed: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr and its constants, from a jaxpr that may be closed (JAX has one type or two)."""
    return getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())


def interpret(closed: Any, inputs: Sequence[Value]) -> list[Value]:
    """Run a closed jaxpr on Nodes and bare arrays."""
    jaxpr, consts = open_jaxpr(closed)
    env: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        return atom.val if isinstance(atom, jex.Literal) else env[atom]

    known = {var: value for var, value in env.items() if is_known(value)}
    folded, left = fold(jaxpr, known)
    env.update(folded)
    for eqn in left:
        outputs = apply(eqn, [read(atom) for atom in eqn.invars])
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def apply(eqn: Any, inputs: list[Value]) -> list[Value]:
    """Outputs of one equation: plain evaluation if no input is differentiated, else the rule's
    result.
    """
    if all(_size(atom.aval) == 0 for atom in eqn.outvars):
        return bind(eqn, [primal_of(value) for value in inputs])
    if any(isinstance(value, Node) for value in inputs):
        if eqn.primitive.name in BROADCASTING:
            inputs = [in_full(value, eqn.outvars[0].aval.shape) for value in inputs]
        return RULES.get(eqn.primitive.name, RULES["*"])(eqn, inputs)
    if eqn.primitive.name in ("jit", "pjit"):
        return RULES["jit"](eqn, inputs)
    return bind(eqn, inputs)


def fold(jaxpr: Any, known: dict[Any, Any]) -> tuple[dict[Any, Any], list[Any]]:
    """Values of small index tables, computed in one program while tracing; the other equations."""
    tables, within = behind_tables(jaxpr), set(known)
    eqns, left = [], []
    for eqn in jaxpr.eqns:
        is_known_soon = is_foldable(eqn, within, tables)
        (eqns if is_known_soon else left).append(eqn)
        within.update(eqn.outvars if is_known_soon else ())
    needed = set(variables([*jaxpr.outvars, *(atom for eqn in left for atom in eqn.invars)]))
    outs = [var for eqn in eqns for var in eqn.outvars if var in needed]
    if not outs:
        return {}, left
    ins = [var for var in known if any(var in eqn.invars for eqn in eqns)]
    core = jex.Jaxpr((), ins, outs, eqns, jaxpr.effects, jaxpr.debug_info)
    program, values = jex.jaxpr_as_fun(jex.ClosedJaxpr(core, ())), [known[var] for var in ins]
    if not getattr(jax.config, "jax_disable_jit", False):
        program = jax.jit(program).lower(*values).compile()
    with jax.ensure_compile_time_eval():
        return dict(zip(outs, program(*values), strict=True)), left


def is_known(value: Value) -> bool:
    """Whether a value is an array whose entries can be read while tracing."""
    return not isinstance(value, (Node, Tracer))


def is_foldable(eqn: Any, known: set[Any], tables: set[Any]) -> bool:
    """Whether an equation has known, small operands and its result is needed to make tables."""
    return (
        not eqn.effects
        and any(var in tables for var in eqn.outvars)
        and known.issuperset(variables(eqn.invars))
        and all(_size(atom.aval) <= MAX_FOLDED for atom in (*eqn.invars, *eqn.outvars))
    )


def behind_tables(jaxpr: Any) -> set[Any]:
    """The variables that hold integers or booleans, and the variables from which these are
    computed.

    Example: `jnp.triu_indices` computes its integers from a matrix of floating-point numbers.
    """
    found: set[Any] = set()
    for eqn in reversed(jaxpr.eqns):
        if any(atom in found or _is_table(atom.aval) for atom in eqn.outvars):
            found.update(variables((*eqn.invars, *eqn.outvars)))
    return found


def variables(atoms: Sequence[Any]) -> list[Any]:
    """The atoms that are not literals."""
    return [atom for atom in atoms if not isinstance(atom, jex.Literal)]


def _is_table(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iub"


def _size(aval: Any) -> int:
    return int(np.prod(getattr(aval, "shape", ()), dtype=np.int64))
