"""Convert the state of a run to flat named arrays, the form of a checkpoint, and back."""

from collections.abc import Mapping

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from vmcjob.errors import StoreError
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import ChainState, LoopState, Params

WALKERS = "walkers"
AGES = "ages"
TALLY = "tally"
RESPONSE = "response"


def to_arrays(state: LoopState) -> dict[str, np.ndarray]:
    """The state of all devices: walkers flat over devices, everything else once.

    Without a device axis, so that a run resumes on another number of devices. All ranks take part.
    """
    leaves, _ = tree_flatten_with_path(devices.unreplicate(_without_walkers(state)))
    arrays = {keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    chain = state.chain
    of_walkers = {WALKERS: chain.r, AGES: chain.age, TALLY: chain.tally}
    return arrays | {name: devices.gather(x) for name, x in of_walkers.items() if x is not None}


def from_arrays(arrays: Mapping[str, np.ndarray], like: LoopState) -> LoopState:
    """The state that `to_arrays` took apart, on this process's devices.

    Args:
        arrays: a checkpoint's arrays.
        like: any state of the same calculation; gives structure, shapes and types.

    Raises StoreError if the checkpoint is of another calculation.
    """
    if like.response is not None:  # checkpoints of earlier releases have none
        arrays = {RESPONSE: np.asarray(devices.unreplicate(like.response)), **arrays}
    template = _without_walkers(like)
    leaves, structure = tree_flatten_with_path(jax.tree.map(lambda leaf: leaf[0], template))
    restored = [
        _checked(arrays, keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves
    ]
    state = devices.replicate(jax.tree.unflatten(structure, restored))
    chain = like.chain._replace(r=devices.shard(arrays[WALKERS]), width=state.chain.width)
    if AGES in arrays:  # checkpoints of earlier releases have none
        chain = chain._replace(age=devices.shard(arrays[AGES]))
    if TALLY in arrays:
        chain = chain._replace(tally=devices.shard(arrays[TALLY]))
    return state._replace(chain=chain)


def take_over(arrays: Mapping[str, np.ndarray], like: LoopState) -> LoopState:
    """`like` with the parameters, the walkers and the width of another run's checkpoint.

    Its walkers are repeated, or some left out, where this run has more or fewer.
    Raises StoreError if its wave function has other parameters, or it has other electrons.
    """
    template = _without_walkers(LoopState(like.params, None, like.chain))
    leaves, structure = tree_flatten_with_path(jax.tree.map(lambda leaf: leaf[0], template))
    restored = [
        _checked(arrays, keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves
    ]
    state = devices.replicate(jax.tree.unflatten(structure, restored))
    n_walkers = devices.count() * like.chain.r.shape[1]
    r = arrays[WALKERS]
    if r.shape[1:] != like.chain.r.shape[2:]:
        found, wanted = r.shape[1], like.chain.r.shape[2]
        raise StoreError(f"train.start_from: a run of {found} electrons, and this one has {wanted}")
    r = devices.shard(r[np.arange(n_walkers) % len(r)])
    chain = like.chain._replace(r=r, width=state.chain.width)
    return like._replace(params=state.params, chain=chain)


def params_from(arrays: Mapping[str, np.ndarray], like: Params) -> Params:
    """The parameters in a checkpoint, as a tree of NumPy arrays like that of their shapes.

    Raises StoreError if they are of another wave function.
    """
    template = LoopState(like, None, ChainState(None, None))  # pyright: ignore[reportArgumentType] -- no leaves
    leaves, structure = tree_flatten_with_path(template)
    found = [
        _checked(arrays, keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves
    ]
    return jax.tree.unflatten(structure, found).params


def _without_walkers(state: LoopState) -> LoopState:
    # None is a subtree without leaves: only what all devices hold alike remains.
    return state._replace(chain=state.chain._replace(r=None, age=None, tally=None))


def _checked(arrays: Mapping[str, np.ndarray], name: str, like: np.ndarray) -> np.ndarray:
    found = arrays.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        what = "missing" if found is None else f"{found.dtype}{list(found.shape)}"
        raise StoreError(
            f"checkpoint of another calculation: {name} is {what}, "
            f"expected {like.dtype}{list(like.shape)}"
        )
    return found
