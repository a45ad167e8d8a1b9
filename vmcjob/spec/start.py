"""Whether a job can begin with what the run of another has learnt."""

from dataclasses import asdict

from vmcjob.document import enumerate_words, format_value
from vmcjob.spec.ansatz import Ansatz
from vmcjob.spec.model import JobSpec


def why_no_start(spec: JobSpec, origin: JobSpec) -> str | None:
    """Why what a run of `origin` has learnt is about another wave function; None if it is not.

    In words that follow "train.start_from: " and the name of that run.
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
    """The keys in which two differ with the values of the other one, and our values of them."""
    ours, theirs = asdict(ansatz), asdict(origin)
    if ansatz.kind != origin.kind:  # whose other keys are not the same ones
        ours, theirs = {"kind": ansatz.kind}, {"kind": origin.kind}
    unlike = [key for key in ours if ours[key] != theirs[key]]
    what = [f"ansatz.{key} = {format_value(theirs[key])}" for key in unlike]
    return enumerate_words(what, "and"), enumerate_words(
        [format_value(ours[key]) for key in unlike], "and"
    )
