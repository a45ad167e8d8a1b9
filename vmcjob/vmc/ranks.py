"""The processes (ranks) that share one calculation: joining, leaving, and exchange of data.

Data are exchanged by a collective of all devices: every rank calls it, in the same order. With one
process, nothing is sent.
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

# Seconds without a sign of life after which a rank is lost and ends the others: a collective on
# GPUs would wait for it for ever.
SILENCE_S = 30
# Seconds to wait at the end for the last commit of rank 0.
PATIENCE_S = 120
# Seconds for the other ranks to hear that all have finished.
FAREWELL_S = 2.0
WORD = np.dtype(np.uint32)


class UnevenRanksError(Exception):
    """The ranks have different numbers of devices."""


def join(coordinator: str, n_ranks: int, rank: int) -> None:
    """Become one of `n_ranks` processes; to be called before any other use of JAX.

    Waits until all ranks are there. Raises UnevenRanksError if they cannot share the walkers
    evenly.
    """
    _be_patient()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would catch SIGTERM
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
            # together: all ranks find this, and an early end of rank 0 would abort the others
            leave()
        shown = ", ".join(f"rank {index}: {n}" for index, n in enumerate(n_devices))
        raise UnevenRanksError(f"every rank needs as many devices as the others, got {shown}")
    # The first collective opens gloo's connections, and gives up after 30 s. So open them now,
    # while all ranks are here, and not while rank 0 is busy with Hartree–Fock.
    exchange(np.zeros((), np.int32))


def _be_patient() -> None:
    """Set the scheduling policy so that a thread that wakes up does not interrupt a running one.

    Otherwise gloo's receiving thread interrupts the sending thread, and then polls for a lock that
    the sender holds until its time slice ends. With two ranks of one core each, an exchange then
    takes some 4 ms instead of 0.1 ms.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # if it is forbidden, exchanges are slow
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def leave() -> None:
    """Wait for the other ranks at the end, because an early end would abort them.

    When all have come, rank 0 waits a moment longer: ranks that have not heard of this yet would
    abort if they found its service gone.
    """
    from jax._src.distributed import global_state  # there is no public name

    if global_state.service is not None and global_state.client is not None:
        global_state.client.shutdown()
        global_state.client = None
        time.sleep(FAREWELL_S)
    jax.distributed.shutdown()


def count() -> int:
    """Number of processes that share the walkers."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this process is rank 0, which writes."""
    return jax.process_index() == 0


def meet(purpose: str) -> bool:
    """Whether all ranks arrive here within `SILENCE_S`; each `purpose` can be used once.

    Not a collective, because a missing rank may itself be waiting in a collective.
    """
    if count() == 1:
        return True
    # JAX has no public name for the barrier of its coordination service.
    from jax._src.distributed import global_state

    if global_state.client is None:
        return False
    try:
        global_state.client.wait_at_barrier(purpose, SILENCE_S * 1000)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def exchange(own: np.ndarray) -> np.ndarray:
    """Numbers of all ranks, of one shape, stacked by rank."""
    if count() == 1:
        return own[None]
    copies = np.broadcast_to(own, (jax.local_device_count(), 1, *own.shape))
    return devices.gather(copies)[:: jax.local_device_count()]


def from_first(own: T | None) -> T:
    """The value of rank 0, of any type; the other ranks pass None."""
    sent = pickle.dumps(own) if is_first() else b""
    n_words = int(exchange(np.array(-(-len(sent) // WORD.itemsize), np.int32))[0])
    words = np.zeros((jax.local_device_count(), n_words), WORD)
    words[0] = np.frombuffer(sent.ljust(n_words * WORD.itemsize, b"\0"), WORD)
    return pickle.loads(devices.unreplicate(_first(words, None)).tobytes())


def _of_first_device(own: Array, _: None) -> Array:
    # A sum: a gather would need the memory of all devices on each of them.
    return devices.total(jnp.where(devices.index() == 0, own, 0))


_first = devices.pmap(_of_first_device)
