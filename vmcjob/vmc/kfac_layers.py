"""Registration of a wave function with kfac-jax: its dense layers and its other parameters.

All knowledge about the inside of kfac-jax is in this module.
"""

import dataclasses
import re
import warnings
from collections.abc import Sequence
from functools import cache
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
"""Largest number of parameters in an array with a full block; larger arrays get a diagonal."""


_RENAMED = r"jax\.core\.\w+ is deprecated"


class KfacUnavailableError(ValueError):
    """kfac-jax is missing, or does not work with the installed JAX."""


def load() -> ModuleType:
    """kfac-jax, repaired if necessary; KfacUnavailableError if it does not work."""
    # Version 0.0.8 uses, at import and when it traces, names that JAX is about to rename or remove.
    warnings.filterwarnings("ignore", _RENAMED, DeprecationWarning, module="kfac_jax")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _RENAMED, DeprecationWarning)  # from its own imports
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
    """Whether JAX returns an equation's parameters as one dict (from 0.9.2), unlike before.

    kfac-jax expects two parts.
    """
    return isinstance(lax.neg_p.get_bind_params({}), dict)


def evaluate_equation(equation: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """Outputs of one equation of a traced function; replaces kfac-jax's, which needs JAX < 0.9.2.

    `Any`, because equations have no public type, and inputs may be arrays or tracers.
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
    """The `kfac_jax.BlockDiagonalCurvature` of a batch, with final blocks.

    A dense layer that acts on electrons, pairs or a walker is a Kronecker-factored block of kernel
    and bias. Every other array of parameters is copied for each walker, so that its block is made
    from the walkers' scores. Without the copies, kfac-jax would square the sum of the scores, which
    grows with the number of walkers and depends on their distribution over devices.

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
    """The class of the block of each array of parameters, by the array's path."""
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
        layer_tag_to_block_ctor={
            "scale_and_shift": _block_of_copies,
            "repeated_dense": _block_of_layer(),
        },
        auto_register_kwargs={"graph_patterns": _patterns()},
    )


@cache
def _block_of_layer() -> type:
    """The block of a dense layer, which divides by its repeats: electrons or pairs with scores.

    A layer without scores has none, like attention over one electron, whose softmax is constant.
    Its factors are zero, F is λ alone, and its update is zero; kfac-jax would have 0 · ∞.
    """
    kfac_jax = load()

    class DenseKroneckerFactored(kfac_jax.RepeatedDenseKroneckerFactored):
        def state_dependent_scale(self, state: Any) -> Array:
            repeats = state.average_repeats.value
            return jnp.where(repeats > 0.0, 1.0 / jnp.where(repeats > 0.0, repeats, 1.0), 1.0)

    return DenseKroneckerFactored


def _block_of_copies(tag: Any) -> Any:
    kfac_jax = load()
    diagonal = kfac_jax.ScaleAndShiftDiagonal(tag)
    return kfac_jax.ScaleAndShiftFull(tag) if diagonal.dim <= MAX_FULL_BLOCK else diagonal


def _patterns() -> tuple[Any, ...]:
    """kfac-jax's patterns of dense layers, and the pattern of a flax layer under `vmap`.

    In the latter, the bias first gets the axes of one walker, and then the axis of walkers.
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
