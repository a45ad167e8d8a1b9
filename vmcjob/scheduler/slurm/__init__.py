"""Runs as jobs of SLURM: the only room that calls its programs to submit, ask and cancel."""

from vmcjob.scheduler.slurm.backend import Slurm

__all__ = ["Slurm"]
