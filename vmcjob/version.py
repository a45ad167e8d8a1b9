"""The version of vmcjob: for `--version`, records of submissions and stores of results."""

__version__ = "0.2.0"
