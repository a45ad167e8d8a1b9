"""The processes that share one calculation: how they join, and what they tell each other.

What is told here goes through a collective of all devices: every rank calls it, in the same order.
With one process, nothing is sent.
"""

import os
import pickle
import time
from contextlib import suppress
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from vmcjob.vmc import devices

T = TypeVar("T")

# A rank that was silent for so long is lost, and takes the others down: a collective on GPUs would
# wait for it for ever.
SILENCE_S = 30
# For the last commit, for which the others wait at the end.
PATIENCE_S = 120
# For the others to hear that all have come to their end.
FAREWELL_S = 2.0
WORD = np.dtype(np.uint32)


class UnevenRanksError(Exception):
    """The ranks do not have as many devices each."""


def join(coordinator: str, n_ranks: int, rank: int) -> None:
    """Become one of `n_ranks` processes; before anything else is asked of JAX.

    Waits until all are there. Raises UnevenRanksError if they cannot share the walkers evenly.
    """
    _be_patient()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    jax.distributed.initialize(
        coordinator,
        n_ranks,
        rank,
        # Under SLURM, JAX would take one GPU for each process and leave the others idle.
        cluster_detection_method="deactivate",
        heartbeat_timeout_seconds=SILENCE_S,
        shutdown_timeout_seconds=PATIENCE_S,
    )
    n_devices = [len(jax.local_devices(process_index=index)) for index in range(n_ranks)]
    if len(set(n_devices)) > 1:
        with suppress(jax.errors.JaxRuntimeError):
            leave()  # together: all find this, and an end of the first one aborts the others
        shown = ", ".join(f"rank {index}: {n}" for index, n in enumerate(n_devices))
        raise UnevenRanksError(f"every rank needs as many devices as the others, got {shown}")
    # The first collective opens gloo's connections, and gives up after 30 s: so now that all are
    # here, and not while the first rank is busy with Hartree-Fock.
    exchange(np.zeros((), np.int32))


def _be_patient() -> None:
    """No thread from now on takes a processor from another one because something has arrived.

    Gloo's thread that waits for messages would take it from the one that is sending, and ask again
    and again for what that one holds, until its time is up: some 4 ms for every exchange, of two
    ranks with a core each, where 0.1 ms are enough.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # where it is forbidden, exchanges are slow
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def leave() -> None:
    """Wait for the others at the end: whoever went first would tear them down.

    When all have come, the first one stays for a moment: others that have not heard of it yet, and
    find its service gone, abort themselves.
    """
    from jax._src.distributed import global_state  # under no public name either

    if global_state.service is not None and global_state.client is not None:
        global_state.client.shutdown()
        global_state.client = None
        time.sleep(FAREWELL_S)
    jax.distributed.shutdown()


def count() -> int:
    """Number of processes that share the walkers."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def meet(purpose: str) -> bool:
    """Whether all ranks come here, for a purpose of which each is served once, before it is late.

    No collective: a rank that does not come may be waiting in one.
    """
    if count() == 1:
        return True
    # JAX has the barrier of its coordination service under no public name.
    from jax._src.distributed import global_state

    if global_state.client is None:
        return False
    try:
        global_state.client.wait_at_barrier(purpose, SILENCE_S * 1000)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def exchange(own: np.ndarray) -> np.ndarray:
    """What every rank has to say, numbers of one shape, by rank."""
    if count() == 1:
        return own[None]
    copies = np.broadcast_to(own, (jax.local_device_count(), 1, *own.shape))
    return devices.gather(copies)[:: jax.local_device_count()]


def from_first(own: T | None) -> T:
    """What the first rank has, of any type; the others have None."""
    sent = pickle.dumps(own) if is_first() else b""
    n_words = int(exchange(np.array(-(-len(sent) // WORD.itemsize), np.int32))[0])
    words = np.zeros((jax.local_device_count(), n_words), WORD)
    words[0] = np.frombuffer(sent.ljust(n_words * WORD.itemsize, b"\0"), WORD)
    return pickle.loads(devices.unreplicate(_first(words, None)).tobytes())


def _of_first_device(own: Array, _: None) -> Array:
    # A sum, where a gather would need the memory of all devices on each of them.
    return devices.total(jnp.where(devices.index() == 0, own, 0))


_first = devices.pmap(_of_first_device)
