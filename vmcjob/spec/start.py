"""Whether a job can begin with what the run of another has learnt."""

from vmcjob.spec.model import JobSpec


def why_no_start(spec: JobSpec, origin: JobSpec) -> str | None:
    """Why what a run of `origin` has learnt is about another wave function; None if it is not.

    In words that follow "train.start_from: " and the name of that run.
    """
    if (spec.system.n_up, spec.system.n_down) != (origin.system.n_up, origin.system.n_down):
        what = f"{origin.system.n_up} and {origin.system.n_down} electrons of either spin"
        ours = f"{spec.system.n_up} and {spec.system.n_down}"
    elif spec.ansatz != origin.ansatz:
        what, ours = "another [ansatz]", "the same one, in every key"
    elif spec.numerics.dtype != origin.numerics.dtype:
        what, ours = f"numerics.dtype {origin.numerics.dtype}", spec.numerics.dtype
    else:
        return None
    return f"has {what}; expected {ours}: start from another run, or without one"
