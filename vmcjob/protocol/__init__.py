"""The protocol between a batch system, a supervisor and its worker.

A worker is asked to stop by a signal and answers by its exit code. Both may be of different
releases of vmcjob, in different images, so these values never change.
"""

import signal
from collections.abc import Mapping

from vmcjob.errors import DivergedError
from vmcjob.rundir import Outcome

STOPPED = 75  # EX_TEMPFAIL: stopped at a checkpoint, start me again
EXIT_CODES: Mapping[Outcome, int] = {
    Outcome.FINISHED: 0,
    Outcome.FAILED: 1,
    Outcome.DIVERGED: DivergedError.exit_code,
    Outcome.PREEMPTED: STOPPED,
    Outcome.EXHAUSTED: STOPPED,
}
"""Of a worker, and of a job whose supervisor has nothing else to say."""

WARNING = signal.SIGURG
"""From the batch system, before an end: the one signal that harms no process by itself. USR2,
submitit's choice, would end the FUSE helper of an image, and with it the file system under the
running worker."""
ENDS_JOB = (WARNING, signal.SIGTERM, signal.SIGINT)
"""What a supervisor takes for a reason to stop its worker."""
STOP = signal.SIGUSR2
"""From a supervisor to its worker, until it ends: stop at the next checkpoint."""
ENDS_WORKER = (signal.SIGTERM, signal.SIGINT, STOP)
"""What a worker stops at its next checkpoint for."""
ORPHANED = signal.SIGHUP
"""What a worker calls it when its supervisor has gone and nobody has sent it anything."""
OUT_OF_MEMORY = "out of memory; use fewer sampler.walkers or a smaller ansatz"
"""What a worker says in its outcome when it got no memory."""
DEADLINE = "deadline"
CANCEL = "cancel"
BUDGET = "budget"
"""Reasons to stop a worker beside the names of signals, as they stand in attempts.jsonl."""

SUPERVISED = "VMCJOB_SUPERVISED"
"""Set for a worker whose standard input ends when its supervisor does, however that ends."""
IMAGE_SHA256 = "VMCJOB_IMAGE_SHA256"
"""Tells the worker what it runs in: the digest goes into the provenance of the results."""
JAX_CACHE = "JAX_COMPILATION_CACHE_DIR"
"""Where JAX keeps compiled programs: of an image, in a folder of the image's."""


def how_it_ended(code: int) -> str:
    """An exit code of Popen, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def as_signal(code: int) -> int:
    """An exit code of Popen; a container reports death by signal n as 128 + n."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code
