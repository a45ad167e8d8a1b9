"""Dry runs: what a batch system would be given, what it can cost, and what it says to that."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vmcjob.cli.screen import put, say
from vmcjob.cli.text import count, format_time, relative
from vmcjob.errors import ContainerError

if TYPE_CHECKING:
    from vmcjob.errors import VmcJobError
    from vmcjob.plan import Task
    from vmcjob.scheduler import Answer, JobPreview, Receipt
    from vmcjob.scheduler.contract import Batch


@dataclass(frozen=True)
class Preview:
    """The jobs that would be submitted; where the cluster was asked, its answer to each."""

    jobs: "Sequence[JobPreview]" = ()
    answers: "Sequence[Answer]" = ()

    def refusals(self) -> "Iterator[VmcJobError]":
        """Why the cluster would not take all of it; of an image that jobs share, once."""
        told: set[str] = set()
        for answer in self.answers:
            error = answer.error or answer.shortage
            if error and str(error) not in told:
                yield error
            told |= {str(error)} if isinstance(error, ContainerError) else set()

    def document(self) -> list[dict[str, Any]]:  # a JSON document
        """Each sbatch as programs read it."""
        jobs = [_describe_job(job) for job in self.jobs]
        for job, answer in zip(jobs, self.answers, strict=False):
            job["check"] = _describe_answer(answer)
        return jobs


NOTHING = Preview()
MPS = "MPS"  # as a preview calls it
MAX_CHANGES = 5  # keys of a sweep, and the seed: more differences deserve the whole spec


def preview(batches: "Sequence[Batch]", answers: "Sequence[Answer]") -> Preview:
    """What a batch system would be given, if it is one, and what it said to that."""
    shown = (batch.preview() for batch in batches)
    return Preview([job for job in shown if job is not None], answers)


def show_preview(receipt: "Receipt", tasks: "Mapping[str, Task]", jobs: Preview) -> None:
    """What would be submitted, as the worker and SLURM would read it."""
    from vmcjob.spec import dump_spec

    first: dict[str, str] | None = None
    for item in receipt.submitted:
        text, where = dump_spec(tasks[item.run_id].spec), relative(item.run.path)
        values = spec_values(text)
        changed = None if first is None else _changes(first, values)
        if changed is None:
            put(f"# would be submitted: {where}\n{text}")
            first = values
        else:
            put(f"# would be submitted: {where}, as the spec above but for {changed}")
    for item in receipt.skipped:
        put(f"# would be skipped: {relative(item.run.path)}, {item.reason}")
    if receipt.skipped and not receipt.submitted:  # the keys are shown in any case, once
        put(dump_spec(tasks[receipt.skipped[0].run_id].spec))
    for job in jobs.jobs:
        jobs_of_several = f" in {count(job.n_jobs, 'job')}" if job.runs_per_job > 1 else ""
        put(f"# would be given to sbatch, for {count(len(job.commands), 'run')}{jobs_of_several}:")
        if job.gpu_sharing:
            put(f"# {_describe_sharing(job.gpu_sharing)}")
        put(job.script)
        command = next(iter(job.commands.values()))
        put(f"# and would start, for each run:\n{shlex.join(command)}")
    if jobs.jobs:
        say(_describe_cost(jobs.jobs), "dim")
    for answer in jobs.answers:
        if answer.n_jobs:
            say(_say_yes(answer))


def spec_values(text: str) -> dict[str, str]:
    """The values of a resolved spec by table and key; each is one line."""
    values: dict[str, str] = {}
    table = ""
    for line in text.splitlines():
        name, sign, value = line.partition(" = ")
        if sign:
            values[table + name] = value
        elif line:
            table = f"{line.strip('[]')}."
    return values


def _changes(first: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """The keys in which a spec differs from another, on one line; None if these are many."""
    keys = [key for key in {**first, **other} if first.get(key) != other.get(key)]
    if len(keys) > MAX_CHANGES or not all(key in other for key in keys):
        return None
    return ", ".join(f"{key} = {other[key]}" for key in keys)


def _say_yes(answer: "Answer") -> str:
    """What the cluster would do with an array that it takes, in one line."""
    some = count(answer.n_jobs, "job")
    queue = f" in partition {answer.partition}" if answer.partition else ""
    when = "; when they start, it does not say"
    if answer.starts_at is not None:
        first = "it" if answer.n_jobs == 1 else "the first"
        when = f"; {first} could start at {format_time(answer.starts_at)} on {answer.nodes}"
    why = f"; {answer.note}" if answer.note else ""
    return f"{answer.batch.job_name}: {answer.system} would take {some}{queue}{when}{why}"


def _describe_sharing(how: str) -> str:
    """How runs share a GPU, in a sentence."""
    if how == MPS:
        return "several runs compute on a GPU at the same time, through MPS"
    return (
        f"several runs share a GPU by {how}, one computing at a time; where the site has MPS, "
        "mps = true in [slurm] of its profile lets them compute at the same time"
    )


def _describe_job(job: "JobPreview") -> dict[str, Any]:  # a JSON document
    """One batch of a dry run."""
    return {
        "job_name": job.job_name,
        "script": job.script,
        "run_ids": [run.path.name for run in job.commands],
        "runs_per_job": job.runs_per_job,
        "gpu_sharing": job.gpu_sharing or None,
        "commands": [list(command) for command in job.commands.values()],
        "gpu_hours": job.cost.gpu_hours,
        "cpu_hours": job.cost.cpu_hours,
        "node_hours": job.cost.node_hours,
        "files": job.cost.files,
    }


def _describe_answer(answer: "Answer") -> dict[str, Any]:  # a JSON document
    """What the cluster said."""
    refusal = answer.error or answer.shortage
    return {
        "jobs_taken": answer.n_jobs,
        "earliest_start": answer.starts_at,
        "nodes": answer.nodes or None,
        "partition": answer.partition or None,
        "note": answer.note or None,
        "refusal": str(refusal) if refusal else None,
    }


def _describe_cost(jobs: "Sequence[JobPreview]") -> str:
    """The most that the jobs can cost, in one line."""
    from vmcjob.runs.usage import format_hours
    from vmcjob.scheduler import Cost

    cost = sum((job.cost for job in jobs), Cost())
    if cost.node_hours == math.inf:
        return f"no limit of wall time, so none of the cost; {count(cost.files, 'file')}"
    hours = [(cost.gpu_hours, "GPU-hours"), (cost.cpu_hours, "CPU-hours")]
    if cost.is_exclusive:
        hours = [(cost.node_hours, "hours of whole nodes")]
    parts = ", ".join(f"{format_hours(amount)} {unit}" for amount, unit in hours)
    return f"at most {parts} and {count(cost.files, 'file')}, each attempt counted once"
