"""On the compute host: starts one run's worker, passes one signal on, ends it in time, requeues."""

from vmcjob.supervisor.contract import BatchContext, Fate
from vmcjob.supervisor.endings import note_end
from vmcjob.supervisor.main import Supervisor
from vmcjob.supervisor.memory import HostMemory
from vmcjob.supervisor.pack import Pack
from vmcjob.supervisor.share import Share
from vmcjob.supervisor.slurm import SlurmJob

__all__ = [
    "BatchContext",
    "Fate",
    "HostMemory",
    "Pack",
    "Share",
    "SlurmJob",
    "Supervisor",
    "note_end",
]
