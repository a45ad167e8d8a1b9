"""Runs on this machine, without a batch system."""

from vmcjob.scheduler.local.backend import Local
from vmcjob.scheduler.local.launcher import Order, serve, slot_folder

__all__ = ["Local", "Order", "serve", "slot_folder"]
