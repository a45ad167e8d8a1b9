"""Dry runs: what SLURM would be given, what it can cost, and what the cluster says to it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vmcjob.cli.screen import put, say
from vmcjob.cli.text import count, format_time, relative

if TYPE_CHECKING:
    from vmcjob.errors import VmcJobError
    from vmcjob.plan import Task
    from vmcjob.scheduler import Receipt
    from vmcjob.scheduler.arrays import Array
    from vmcjob.scheduler.preflight import Answer


@dataclass(frozen=True)
class Preview:
    """The arrays that would be submitted; where the cluster was asked, its answer to each."""

    arrays: "Sequence[Array]" = ()
    answers: "Sequence[Answer]" = ()

    def refusals(self) -> "Iterator[VmcJobError]":
        """Why the cluster would not take all of it."""
        for answer in self.answers:
            if error := answer.error or answer.shortage:
                yield error

    def document(self) -> list[dict[str, Any]]:  # a JSON document
        """Each sbatch as programs read it."""
        jobs = [_describe_job(array) for array in self.arrays]
        for job, answer in zip(jobs, self.answers, strict=False):
            job["check"] = _describe_answer(answer)
        return jobs


NOTHING = Preview()


def preview(arrays: "Sequence[Array]", *, is_checked: bool) -> Preview:
    """What would be submitted, and what the cluster says to it if that is to be asked."""
    from vmcjob.scheduler.preflight import check

    return Preview(arrays, check(arrays) if is_checked else ())


def show_preview(receipt: "Receipt", tasks: "Mapping[str, Task]", jobs: Preview) -> None:
    """What would be submitted, as the worker and SLURM would read it."""
    from vmcjob.spec import dump_spec

    for item in receipt.submitted:
        put(f"# would be submitted: {relative(item.run.path)}")
        put(dump_spec(tasks[item.run_id].spec))
    for item in receipt.skipped:
        put(f"# would be skipped: {relative(item.run.path)}, {item.reason}")
    for array in jobs.arrays:
        jobs_of_several = f" in {count(array.n_jobs, 'job')}" if array.runs_per_job > 1 else ""
        put(f"# would be given to sbatch, for {count(len(array.runs), 'run')}{jobs_of_several}:")
        put(array.script)
        put(f"# and would start, for each run:\n{shlex.join(array.command(array.runs[0]))}")
    if jobs.arrays:
        say(_describe_cost(jobs.arrays), "dim")
    for answer in jobs.answers:
        if answer.n_jobs:
            say(_say_yes(answer))


def _say_yes(answer: "Answer") -> str:
    """What the cluster would do with an array that it takes, in one line."""
    some = count(answer.n_jobs, "job")
    queue = f" in partition {answer.partition}" if answer.partition else ""
    when = "; when they start, it does not say"
    if answer.starts_at is not None:
        first = "it" if answer.n_jobs == 1 else "the first"
        when = f"; {first} could start at {format_time(answer.starts_at)} on {answer.nodes}"
    return f"{answer.array.job_name}: SLURM would take {some}{queue}{when}"


def _describe_job(array: "Array") -> dict[str, Any]:  # a JSON document
    """One sbatch of a dry run."""
    return {
        "job_name": array.job_name,
        "script": array.script,
        "run_ids": [run.path.name for run in array.runs],
        "runs_per_job": array.runs_per_job,
        "commands": [list(array.command(run)) for run in array.runs],
        "gpu_hours": array.cost.gpu_hours,
        "cpu_hours": array.cost.cpu_hours,
        "node_hours": array.cost.node_hours,
        "files": array.cost.files,
    }


def _describe_answer(answer: "Answer") -> dict[str, Any]:  # a JSON document
    """What the cluster said."""
    refusal = answer.error or answer.shortage
    return {
        "jobs_taken": answer.n_jobs,
        "earliest_start": answer.starts_at,
        "nodes": answer.nodes or None,
        "partition": answer.partition or None,
        "refusal": str(refusal) if refusal else None,
    }


def _describe_cost(arrays: "Sequence[Array]") -> str:
    """The most that the jobs can cost, in one line."""
    from vmcjob.scheduler.arrays import Cost

    cost = sum((array.cost for array in arrays), Cost())
    hours = [(cost.gpu_hours, "GPU-hours"), (cost.cpu_hours, "CPU-hours")]
    if cost.is_exclusive:
        hours = [(cost.node_hours, "hours of whole nodes")]
    parts = ", ".join(f"{amount:.3g} {unit}" for amount, unit in hours)
    return f"at most {parts} and {count(cost.files, 'file')}, each attempt counted once"
