"""How fast, how small, how good: each a command of its own, with the threads that a worker has."""

from vmcjob.run.startup import settle_threads

settle_threads()
