"""SLURM as a job sees it: the job itself, SLURM's programs and their environment."""

from vmcjob.slurm.job import SlurmJob

__all__ = ["SlurmJob"]
