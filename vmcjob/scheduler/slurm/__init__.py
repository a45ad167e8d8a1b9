"""Runs as jobs of SLURM: the only room that calls its programs to submit, ask and cancel."""

from vmcjob.scheduler.slurm.arrays import asked_gpus
from vmcjob.scheduler.slurm.backend import Slurm
from vmcjob.scheduler.slurm.commands import hurried
from vmcjob.scheduler.slurm.profile import draft_profile, has_gpus

__all__ = ["Slurm", "asked_gpus", "draft_profile", "has_gpus", "hurried"]
