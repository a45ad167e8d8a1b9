"""The command line: each command parses, calls one function and prints what it returns."""

from vmcjob.cli.app import main

__all__ = ["main"]
