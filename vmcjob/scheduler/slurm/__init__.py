"""Runs as jobs of SLURM: the only room that calls its programs to submit, ask and cancel."""

from vmcjob.scheduler.slurm.backend import Slurm
from vmcjob.scheduler.slurm.profile import draft_profile, has_gpus

__all__ = ["Slurm", "draft_profile", "has_gpus"]
