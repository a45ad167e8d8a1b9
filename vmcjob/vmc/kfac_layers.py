"""How kfac-jax sees a wave function: which parameters are a dense layer, and what the rest are.

All that this project knows about the inside of kfac-jax is here.
"""

import dataclasses
import re
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from jax import Array, lax
from jax.tree_util import keystr, tree_leaves_with_path
from jaxtyping import Float

from vmcjob.vmc.contracts import LogPsi, Params

MAX_FULL_BLOCK = 1024
"""Parameters of one array that get a matrix of their own; more get its diagonal alone."""


_RENAMED = r"jax\.core\.\w+ is deprecated"


class KfacUnavailableError(ValueError):
    """There is no kfac-jax, or not one that works with the installed JAX."""


def load() -> ModuleType:
    """kfac-jax, repaired if need be; KfacUnavailableError where no small repair would do."""
    # Version 0.0.8 names, at import and when it traces, what JAX is about to rename or remove.
    warnings.filterwarnings("ignore", _RENAMED, DeprecationWarning, module="kfac_jax")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _RENAMED, DeprecationWarning)  # by what it imports
            warnings.filterwarnings("ignore", ".*jax_pmap_shmap_merge", DeprecationWarning)
            import kfac_jax
            from kfac_jax._src import tag_graph_matcher
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "kfac_jax":
            message = "kfac-jax is not installed; pip install 'kfac-jax>=0.0.8'"
        else:
            message = f"kfac-jax does not work with JAX {jax.__version__} ({error}); use JAX < 0.11"
        raise KfacUnavailableError(message) from error
    if is_repair_needed():
        tag_graph_matcher.eval_jaxpr_eqn = evaluate_equation
    return kfac_jax


def is_repair_needed() -> bool:
    """Whether JAX has an equation's parameters in one part (0.9.2), where kfac-jax expects two."""
    return isinstance(lax.neg_p.get_bind_params({}), dict)


def evaluate_equation(equation: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """Outputs of one equation of a traced function, as kfac-jax 0.0.8 has it for JAX < 0.9.2.

    `Any`: equations have no public type, and inputs are arrays and tracers alike.
    """
    with jax.extend.source_info_util.user_context(equation.source_info.traceback):
        parameters = equation.primitive.get_bind_params(equation.params)
        outputs = equation.primitive.bind(*inputs, **parameters)
    return outputs if isinstance(outputs, list) else [outputs]


def make_curvature(
    log_psi: LogPsi,
    params: Params,
    r: Float[Array | jax.ShapeDtypeStruct, "walker elec 3"],
) -> Any:
    """The `kfac_jax.BlockDiagonalCurvature` of a batch, its blocks settled.

    A dense layer that an electron, a pair or a walker goes through is a Kronecker-factored block,
    kernel and bias together. Every other array of parameters is handed to each walker as a copy of
    its own, so that its block is made of the walkers' scores. kfac-jax left alone would square
    their sum, which grows with the number of walkers and depends on how devices share them.

    Args:
        log_psi: one walker's log|ψ|.
        params, r: arrays, or shapes to trace with; nothing is computed.
    """
    draft = _curvature(log_psi, copied=frozenset())
    draft.finalize((params, r))
    copied = {
        index
        for indices, block in draft.indices_to_block_map.items()
        if "Kronecker" not in type(block).__name__
        for index in indices
    }
    curvature = _curvature(log_psi, frozenset(copied))
    curvature.finalize((params, r))
    return curvature


def name_blocks(curvature: Any, params: Params) -> dict[str, str]:
    """The class of the block that every array of parameters belongs to, by its path."""
    names = [keystr(path, simple=True, separator="/") for path, _ in tree_leaves_with_path(params)]
    blocks = {
        names[index]: type(block).__name__
        for indices, block in curvature.indices_to_block_map.items()
        for index in indices
    }
    return {name: blocks[name] for name in names}


def _curvature(log_psi: LogPsi, copied: frozenset[int]) -> Any:
    kfac_jax = load()

    def registered(params: Params, r: Array) -> Array:
        leaves, structure = jax.tree.flatten(params)
        for index in copied:
            ones = jnp.ones((len(r), *leaves[index].shape), leaves[index].dtype)
            leaves[index] = kfac_jax.register_scale_and_shift(
                ones * leaves[index], ones, scale=leaves[index]
            )
        axes = structure.unflatten([0 if i in copied else None for i in range(len(leaves))])
        batch = jax.vmap(log_psi, (axes, 0))(structure.unflatten(leaves), r)
        kfac_jax.register_normal_predictive_distribution(batch[:, None])
        return jnp.mean(batch)

    return kfac_jax.BlockDiagonalCurvature(
        registered,
        layer_tag_to_block_ctor={"scale_and_shift": _block_of_copies},
        auto_register_kwargs={"graph_patterns": _patterns()},
    )


def _block_of_copies(tag: Any) -> Any:
    kfac_jax = load()
    diagonal = kfac_jax.ScaleAndShiftDiagonal(tag)
    return kfac_jax.ScaleAndShiftFull(tag) if diagonal.dim <= MAX_FULL_BLOCK else diagonal


def _patterns() -> tuple[Any, ...]:
    """What kfac-jax knows to be a dense layer, and what flax makes of one under `vmap`.

    There the bias is given the axes of one walker first and the axis of walkers after.
    """
    from kfac_jax._src import tag_graph_matcher

    def dense(x: Array, kernel_and_bias: Sequence[Array]) -> Array:
        kernel, bias = kernel_and_bias
        y = jnp.tensordot(x, kernel, axes=1)
        of_walker = bias.reshape((1,) * (y.ndim - 2) + bias.shape)
        return y + of_walker[None]

    known = tag_graph_matcher.DEFAULT_GRAPH_PATTERNS
    ours = tuple(
        dataclasses.replace(pattern, name=f"walkers_{pattern.name}", compute_func=dense)
        for pattern in known
        if re.fullmatch(r"repeated\[\d\]_dense_with_bias_with_reshape", pattern.name)
        and len(pattern.example_args[1][0].shape) == 2
    )
    return ours + known
