"""The command line: each command parses, calls one function and prints what it returns."""

# Importing a group of commands registers it; this order is that of the help page.
from vmcjob.cli import init, doctor, specs, keys, schema, submit, status, runs, show, results, plot  # noqa: F401, I001
from vmcjob.cli import report, export, archive, prune, image, worker  # noqa: F401
from vmcjob.cli.app import main

__all__ = ["main"]
