"""The tree of errors meant for the user: a sentence and an exit code each, never a traceback."""

from collections.abc import Sequence


class VmcJobError(Exception):
    """Base of all errors meant for the user; printed without a traceback."""

    exit_code = 1


def combine(errors: Sequence[VmcJobError]) -> VmcJobError:
    """Several errors as one, a line each, with the exit code of the gravest."""
    gravest = max(errors, key=lambda error: error.exit_code)
    together = VmcJobError("\n".join(map(str, errors)))
    together.exit_code = gravest.exit_code
    return together


class RunDirError(VmcJobError):
    """A run directory is missing a part, belongs to another run, or is in use."""


class StoreError(VmcJobError):
    """A result store is missing, damaged, foreign or of a newer schema."""


class DeviceError(VmcJobError):
    """JAX cannot be started, or finds no device to compute on."""


class ExportError(VmcJobError):
    """The files of another program cannot be written."""


class UsageError(VmcJobError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class SpecError(VmcJobError):
    """One or more problems in a TOML file, reported together, each a finished message."""

    exit_code = 2

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class IncompleteError(VmcJobError):
    """Some of the selected runs failed or are not converged."""

    exit_code = 3


class NotFoundError(VmcJobError):
    """A file, a run or a selector that matches nothing."""

    exit_code = 4


class SchedulerError(VmcJobError):
    """The scheduler refused, or could not be reached."""

    exit_code = 5


class ContainerError(VmcJobError):
    """The container could not be found, verified or started."""

    exit_code = 6


class DivergedError(VmcJobError):
    """The optimization left the finite numbers; the last finite state is kept."""

    exit_code = 7
