"""On the compute host: starts one run's worker, passes one signal on, ends it in time, requeues."""

from vmcjob.supervisor.endings import note_end
from vmcjob.supervisor.main import Supervisor
from vmcjob.supervisor.memory import HostMemory
from vmcjob.supervisor.pack import Pack
from vmcjob.supervisor.share import Share

__all__ = ["HostMemory", "Pack", "Share", "Supervisor", "note_end"]
