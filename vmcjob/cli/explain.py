"""The command `aggregate --explain`: the derivation of one row, for people and for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vmcjob.cli.text import align_facts, format_energy
from vmcjob.errors import NotFoundError

if TYPE_CHECKING:
    from vmcjob.cli.energies import Energies
    from vmcjob.results.explain import Facts, RowTrace, RunTrace
    from vmcjob.rundir import RunDir


def explain_row(run: "RunDir", energies: "Energies") -> "RowTrace":
    """The derivation of a run's row; NotFoundError, with the reason, if it has no row."""
    from vmcjob.results.explain import trace_row

    run_id = run.path.name
    for row in energies.table.rows:
        if run_id in row.run_ids:
            stores = {one: energies.runs[one].run.store_path for one in row.run_ids}
            return trace_row(row.name, stores, row.verdict, row.why)
    if run_id not in energies.runs:
        raise NotFoundError(f"{run_id}: is not among the runs named; name it too, or none")
    left_out = dict([*energies.table.excluded, *energies.table.contained])
    raise NotFoundError(f"{run_id}: is in no row: {left_out.get(run_id, 'its record is damaged')}")


def explanation_document(trace: "RowTrace") -> dict[str, Any]:  # a JSON document
    """The output of `--json`."""
    return {"schema_version": 1, **asdict(trace)}


def explanation_text(trace: "RowTrace") -> str:
    """All steps in order."""
    return "\n\n".join(_sections(trace))


def _sections(trace: "RowTrace") -> Iterator[str]:
    from vmcjob.results.explain import meaning

    for run in trace.runs:
        yield from _run_sections(run)
    if trace.pooling:
        yield _section("runs pooled", trace.pooling)
        yield _section(f"{trace.name}, pooled", meaning(trace.estimate))
    digits = format_energy(trace.estimate.mean, trace.estimate.error)
    verdict = f"{trace.verdict}: {trace.why}" if trace.why else trace.verdict
    facts = {"name": trace.name, "energy": f"{digits} hartree", "verdict": verdict}
    yield _section("in the table", facts)


def _run_sections(run: "RunTrace") -> Iterator[str]:
    from vmcjob.results.explain import meaning

    yield _section(f"{run.run_id}: rows of its store", run.rows)
    for name, facts in run.errors.items():
        chosen = ": the largest, so the error" if name == run.chosen else ""
        yield _section(f"{run.run_id}: error from {name}{chosen}", facts)
    yield _section(f"{run.run_id}: energy", meaning(run.estimate))


def _section(title: str, facts: "Facts") -> str:
    return f"# {title}\n{align_facts(_in_words(facts))}"


def _in_words(facts: "Facts") -> Mapping[str, str]:
    return {
        name: f"{value:.12g}" if isinstance(value, float) else str(value)
        for name, value in facts.items()
        if value is not None
    }
