"""The pmap axis: layout of arrays on devices, and sums over devices.

If several processes share the walkers, the axis runs over the devices of all processes, and a
process holds its own part of an array with a device axis.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "device"
WORD = np.dtype(np.uint32)
Tree = TypeVar("Tree")


@partial(
    jax.tree_util.register_dataclass, data_fields=["words"], meta_fields=["structure", "kinds"]
)
@dataclass(frozen=True)
class Packed:
    """A tree of small arrays packed into one array, bit for bit.

    Each transfer from a GPU has a latency, however small the array is. Fetching the numbers of a
    step one by one took longer than a step of a small system.
    """

    words: Any  # unsigned integers, on devices or on the host
    structure: Any  # from `jax.tree.flatten`
    kinds: tuple[tuple[tuple[int, ...], str], ...]  # shape and dtype of every leaf

    def unpack(self, words: np.ndarray) -> Any:
        """The tree, from its words on the host."""
        leaves, first = [], 0
        for shape, name in self.kinds:
            dtype = np.dtype(name)
            n_words = math.prod(shape) * max(dtype.itemsize // WORD.itemsize, 1)
            own = words[first : first + n_words]
            leaves.append((own != 0 if dtype.kind == "b" else own.view(dtype)).reshape(shape))
            first += n_words
        return jax.tree.unflatten(self.structure, leaves)


def pack(tree: Any) -> Packed:
    """Pack a tree of booleans and of numbers with 32 or 64 bits; inside pmap."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    kinds = tuple((x.shape, x.dtype.name) for x in arrays)
    words = [jnp.ravel(_words(x)) for x in arrays]
    return Packed(jnp.concatenate(words), structure, kinds)


def _words(x: Array) -> Array:
    return x.astype(WORD) if x.dtype.kind == "b" else jax.lax.bitcast_convert_type(x, WORD)


def count() -> int:
    """Number of devices that share the walkers, including those of other processes."""
    return jax.device_count()


def pmap(fn: Callable[..., Any], donate_argnums: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Run `fn(sliced, shared)` once per device; only the first argument has a device axis."""
    return jax.pmap(fn, axis_name=AXIS, in_axes=(0, None), donate_argnums=donate_argnums)


def run_once(fn: Callable[..., Tree]) -> Callable[..., Tree]:
    """`fn` as a program for a single call: on a CPU, compiled in a fifth of the time."""
    options: Any = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(fn, compiler_options=options)


def _sharding() -> NamedSharding:
    # The mesh axis has pmap's name, so that pmap accepts these arrays without moving them.
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec(AXIS))


def shard(batch: np.ndarray | Array) -> Array:
    """``(walker, …) -> (device, walker / device, …)``, each slice on its device.

    A process places the walkers of its own devices. Raises ValueError if the number of walkers is
    not a multiple of the number of devices.
    """
    host = np.asarray(batch)
    n_devices = count()
    if host.shape[0] % n_devices:
        raise ValueError(f"{host.shape[0]} walkers cannot be shared evenly by {n_devices} devices")
    slices = host.reshape(n_devices, -1, *host.shape[1:])
    first = jax.process_index() * jax.local_device_count()
    return jax.device_put(slices[first : first + jax.local_device_count()], _sharding())


def gather(sharded: np.ndarray | Array) -> np.ndarray:
    """The inverse of `shard`: all walkers on the host; a collective of all processes."""
    if jax.process_count() > 1:
        return unreplicate(_concatenated(sharded, None))
    host = np.asarray(sharded)
    return host.reshape(-1, *host.shape[2:])


def replicate(tree: Tree) -> Tree:
    """Copy each leaf to each device of this process, with a leading device axis."""
    n_devices = jax.local_device_count()

    def copies(leaf: Any) -> np.ndarray:  # Any: arrays of NumPy and JAX and plain numbers alike
        host = np.asarray(leaf)
        # A copy: JAX may share a buffer instead of copying, and a shared buffer can be donated only
        # once.
        return np.array(np.broadcast_to(host, (n_devices, *host.shape)))

    return jax.device_put(jax.tree.map(copies, tree), _sharding())


def on_each(shapes: Tree) -> Tree:
    """Shapes of arrays whose slices on each device of this process have the given shapes."""
    n_devices, sharding = jax.local_device_count(), _sharding()

    def on_all(x: Any) -> Any:  # Any: whatever has a shape and a dtype
        return jax.ShapeDtypeStruct((n_devices, *x.shape), x.dtype, sharding=sharding)

    return jax.tree.map(on_all, shapes)


def unreplicate(tree: Tree) -> Tree:
    """The first device's copy of each leaf, on the host; `Packed` trees are unpacked."""

    def take(leaf: Any) -> Any:
        if isinstance(leaf, Packed):
            return leaf.unpack(take(leaf.words))
        return leaf[0, ...]  # an array, also of a scalar

    def is_packed(leaf: Any) -> bool:
        return isinstance(leaf, Packed)

    # Start all transfers before waiting for the first.
    host = jax.device_get(jax.tree.map(lambda leaf: leaf.addressable_data(0), tree))
    return jax.tree.map(take, host, is_leaf=is_packed)


def mean(tree: Tree) -> Tree:
    """Mean over devices; inside pmap."""
    return jax.lax.pmean(tree, AXIS)


def total(tree: Tree) -> Tree:
    """Sum over devices; inside pmap."""
    return jax.lax.psum(tree, AXIS)


def largest(x: Array) -> Array:
    """Elementwise maximum over all devices; inside pmap."""
    return jax.lax.pmax(x, AXIS)


def index() -> Array:
    """Number of this device, from 0; inside pmap."""
    return jax.lax.axis_index(AXIS)


def concatenate(x: Array) -> Array:
    """The slices of all devices, concatenated, on each device; inside pmap."""
    return jax.lax.all_gather(x, AXIS, tiled=True)


def rows_to_columns(x: Array) -> Array:
    """``(own rows, columns) -> (all rows, own columns)``, padded with zeros; inside pmap."""
    n_devices = total(1)
    padded = jnp.pad(x, ((0, 0), (0, -x.shape[1] % n_devices)))
    return jax.lax.all_to_all(padded, AXIS, split_axis=1, concat_axis=0, tiled=True)


def own_walkers(n_own: int) -> Array:
    """The numbers of this device's walkers among all walkers; inside pmap."""
    return index() * n_own + jnp.arange(n_own)


def all_finite(tree: Any) -> Array:
    """Whether each number in the tree is finite on each device; inside pmap."""
    # One test of one array compiles faster than a test for each of many leaves.
    numbers = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    local = jnp.all(jnp.isfinite(jnp.concatenate(numbers)))
    return jax.lax.pmin(local.astype(jnp.int32), AXIS) == 1


def _concatenate(x: Array, _: None) -> Array:
    return concatenate(x)


_concatenated = pmap(_concatenate)
