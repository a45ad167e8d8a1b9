"""The pmap axis: how arrays lie on the devices, and what is summed over them.

Where several processes share the walkers, the axis runs over the devices of all of them, and an
array with a device axis is a process's own part of it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "device"
Tree = TypeVar("Tree")


def count() -> int:
    """Number of devices that share the walkers, those of other processes included."""
    return jax.device_count()


def pmap(fn: Callable[..., Any], donate_argnums: tuple[int, ...] = ()) -> Callable[..., Any]:
    """`fn(sliced, shared)` once per device; only the first argument has a device axis."""
    return jax.pmap(fn, axis_name=AXIS, in_axes=(0, None), donate_argnums=donate_argnums)


def run_once(fn: Callable[..., Tree]) -> Callable[..., Tree]:
    """`fn` as a program that is called once: on a CPU, in a fifth of the time to compile it."""
    options: Any = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(fn, compiler_options=options)


def _sharding() -> NamedSharding:
    # The mesh axis carries pmap's own name, so that pmap takes these arrays without moving them.
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec(AXIS))


def shard(batch: np.ndarray | Array) -> Array:
    """``(walker, …) -> (device, walker / device, …)``, each slice on its device.

    Of all walkers, a process places those of its own devices.
    Raises ValueError if the devices do not divide the walkers.
    """
    host = np.asarray(batch)
    n_devices = count()
    if host.shape[0] % n_devices:
        raise ValueError(f"{host.shape[0]} walkers cannot be shared evenly by {n_devices} devices")
    slices = host.reshape(n_devices, -1, *host.shape[1:])
    first = jax.process_index() * jax.local_device_count()
    return jax.device_put(slices[first : first + jax.local_device_count()], _sharding())


def gather(sharded: np.ndarray | Array) -> np.ndarray:
    """The inverse of `shard`: all walkers, flat, on the host; a collective of all processes."""
    if jax.process_count() > 1:
        return unreplicate(_concatenated(sharded, None))
    host = np.asarray(sharded)
    return host.reshape(-1, *host.shape[2:])


def replicate(tree: Tree) -> Tree:
    """Every leaf copied to every device of this process, behind a leading device axis."""
    n_devices = jax.local_device_count()

    def copies(leaf: Any) -> np.ndarray:  # Any: arrays of NumPy and JAX and plain numbers alike
        host = np.asarray(leaf)
        # A copy: what JAX need not copy itself it shares, and a shared buffer is donated once only.
        return np.array(np.broadcast_to(host, (n_devices, *host.shape)))

    return jax.device_put(jax.tree.map(copies, tree), _sharding())


def on_each(shapes: Tree) -> Tree:
    """Of arrays whose slices, one on each device of this process, have these shapes."""
    n_devices, sharding = jax.local_device_count(), _sharding()

    def on_all(x: Any) -> Any:  # Any: whatever has a shape and a dtype
        return jax.ShapeDtypeStruct((n_devices, *x.shape), x.dtype, sharding=sharding)

    return jax.tree.map(on_all, shapes)


def unreplicate(tree: Tree) -> Tree:
    """The first device's copy of every leaf, on the host."""

    def take(leaf: Array) -> np.ndarray:
        return np.asarray(leaf.addressable_shards[0].data)[0, ...]  # an array, also of a scalar

    return jax.tree.map(take, tree)


def mean(tree: Tree) -> Tree:
    """Mean over devices; inside pmap."""
    return jax.lax.pmean(tree, AXIS)


def total(tree: Tree) -> Tree:
    """Sum over devices; inside pmap."""
    return jax.lax.psum(tree, AXIS)


def largest(x: Array) -> Array:
    """Element by element the largest of all devices; inside pmap."""
    return jax.lax.pmax(x, AXIS)


def index() -> Array:
    """Which of the devices this is, from 0; inside pmap."""
    return jax.lax.axis_index(AXIS)


def concatenate(x: Array) -> Array:
    """The slices of all devices one behind the other, on each of them; inside pmap."""
    return jax.lax.all_gather(x, AXIS, tiled=True)


def rows_to_columns(x: Array) -> Array:
    """``(own rows, columns) -> (all rows, own columns)``, filled up with zeros; inside pmap."""
    n_devices = total(1)
    padded = jnp.pad(x, ((0, 0), (0, -x.shape[1] % n_devices)))
    return jax.lax.all_to_all(padded, AXIS, split_axis=1, concat_axis=0, tiled=True)


def own_walkers(n_own: int) -> Array:
    """The numbers of this device's walkers among those of all devices; inside pmap."""
    return index() * n_own + jnp.arange(n_own)


def all_finite(tree: Any) -> Array:
    """True if every number in the tree is finite on every device; inside pmap."""
    # Of one array: a test for each of many leaves takes longer to compile.
    numbers = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    local = jnp.all(jnp.isfinite(jnp.concatenate(numbers)))
    return jax.lax.pmin(local.astype(jnp.int32), AXIS) == 1


def _concatenate(x: Array, _: None) -> Array:
    return concatenate(x)


_concatenated = pmap(_concatenate)
