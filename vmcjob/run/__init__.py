"""The worker: takes one run directory from its spec to its outcome, on all devices."""

from vmcjob.run.main import main

__all__ = ["main"]
