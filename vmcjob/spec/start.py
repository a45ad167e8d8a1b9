"""Whether a job can start from the results of another run."""

from dataclasses import asdict

from vmcjob.document import enumerate_words, format_value
from vmcjob.spec.ansatz import Ansatz
from vmcjob.spec.model import JobSpec


def why_no_start(spec: JobSpec, origin: JobSpec) -> str | None:
    """The reason why a run of `origin` has another wave function; None if it has the same.

    The words follow "train.start_from: " and the name of that run.
    """
    if (spec.system.n_up, spec.system.n_down) != (origin.system.n_up, origin.system.n_down):
        what = f"{origin.system.n_up} and {origin.system.n_down} electrons of either spin"
        ours = f"{spec.system.n_up} and {spec.system.n_down}"
    elif spec.ansatz != origin.ansatz:
        what, ours = _name_differences(spec.ansatz, origin.ansatz)
    elif spec.numerics.dtype != origin.numerics.dtype:
        what, ours = f"numerics.dtype {origin.numerics.dtype}", spec.numerics.dtype
    else:
        return None
    return f"has {what}; expected {ours}: start from another run, or without one"


def _name_differences(ansatz: Ansatz, origin: Ansatz) -> tuple[str, str]:
    """The differing keys with `origin`'s values, and `ansatz`'s values of these keys."""
    ours, theirs = asdict(ansatz), asdict(origin)
    if ansatz.kind != origin.kind:  # kinds have different keys
        ours, theirs = {"kind": ansatz.kind}, {"kind": origin.kind}
    unlike = [key for key in ours if ours[key] != theirs[key]]
    what = [f"ansatz.{key} = {format_value(theirs[key])}" for key in unlike]
    return enumerate_words(what, "and"), enumerate_words(
        [format_value(ours[key]) for key in unlike], "and"
    )
