"""The command `estimate`: the size of a run, its hours here, and what to ask a cluster for."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.asking import Asking, ask_for
from vmcjob.cli.calibrate import Calibration, calibrate, hours_of, most_walkers
from vmcjob.cli.complete import complete_specs
from vmcjob.cli.expand import expand_options
from vmcjob.cli.hints import OF_ESTIMATE, SECONDS, suggest, typed
from vmcjob.cli.options import AsJson, RunsRoot, SiteProfile, require_root, resolve_site
from vmcjob.cli.overrides import SpecChanges
from vmcjob.cli.screen import n_columns, put, put_json, say
from vmcjob.cli.specs import read_plans
from vmcjob.cli.text import align_facts, count, format_duration
from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.plan import Task
    from vmcjob.spec import JobSpec
    from vmcjob.spec.size import Size

LIMIT_S = 60.0
WORDS = {"warmup": "step of moves", "train": "training step", "evaluate": "evaluation step"}

OneSpec = Annotated[
    Path, typer.Argument(metavar="SPEC", help="Job spec (TOML).", autocompletion=complete_specs)
]
HasCalibration = Annotated[
    bool,
    typer.Option(
        "--calibration/--no-calibration", help="Whether to time a few real steps on this machine."
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(
        SECONDS,
        min=5,
        max=3600,
        metavar="S",
        help=f"Most seconds that the calibration takes. [default: {LIMIT_S:g}]",
    ),
]


@app.command(cls=Command)
@expand_options
def estimate(
    spec: OneSpec,
    changes: SpecChanges,
    site: SiteProfile = None,
    runs: RunsRoot = None,
    has_calibration: HasCalibration = True,
    limit_s: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the size, hours and memory of a spec's largest run.

    Sizes come from formulas. The calibration compiles the real steps of the run and times a few of
    them on this machine, in a process that is ended after --seconds. Each line says whether its
    number is measured or extrapolated. The last lines say what to ask a cluster for, from finished
    runs that are like this one.
    """
    from vmcjob.runs.history import find_like
    from vmcjob.spec.size import measure

    if limit_s is not None and not has_calibration:
        raise UsageError(f"{SECONDS} limits the calibration; leave it or --no-calibration out")
    require_root(runs)
    (plan,) = read_plans([spec], changes)
    task = max(plan.tasks, key=lambda one: measure(one.spec).memory_bytes)
    asking = ask_for(find_like(resolve_site(site, runs).runs, task.spec), task.spec)
    calibration = calibrate(task.spec, limit_s or LIMIT_S) if has_calibration else Calibration()
    if as_json:
        put_json(_document(task, len(plan.tasks), calibration, asking))
    else:
        facts = _size_facts(measure(task.spec), len(plan.tasks))
        if calibration.phases:
            facts |= _cost_facts(task.spec, calibration, asking)
        put(f"{plan.source}: {task.run_id}")
        put(align_facts(facts | asking.facts(), n_columns()))
        suggest(typed(command="submit -n", without=(*OF_ESTIMATE, SECONDS)))
    if calibration.why_not:
        say(calibration.why_not)
    if calibration.exit_code:
        raise typer.Exit(VmcJobError.exit_code)


def _size_facts(size: "Size", n_runs: int) -> dict[str, str]:
    """What formulas know."""
    from vmcjob.spec import format_bytes
    from vmcjob.spec.size import MAX_FILES

    return {
        "runs": f"{count(n_runs, 'run')}; this is the largest" if n_runs > 1 else "",
        "parameters": str(size.parameters),
        "least memory": f"{format_bytes(size.memory_bytes)}, by a formula",
        "on disk": f"about {format_bytes(size.store_bytes)}, fewer than {MAX_FILES} files",
    }


def _cost_facts(spec: "JobSpec", calibration: Calibration, asking: Asking) -> dict[str, str]:
    """What the calibration knows, as far as it came."""
    from vmcjob.spec import format_bytes
    from vmcjob.spec.size import measure

    facts = {"here": f"measured on {calibration.machine['devices']}"}
    for phase, of in calibration.phases.items():
        steps = f"median of {count(of['n_steps'], 'step')}"
        compiled = f"compiled in {of['compile_s']:.3g} s"
        facts[WORDS[phase]] = f"{of['step_s']:.3g} s, measured: {steps}; {compiled}"
    if program := calibration.program_bytes:
        facts["memory of a step"] = f"{format_bytes(program)} on a device, by the compiler"
    peak = max(of["peak_bytes"] for of in calibration.phases.values())
    facts["host memory"] = f"{format_bytes(peak)} at its peak, measured"
    facts["time here"] = _time_words(spec, calibration, asking)
    if walkers := most_walkers(spec, measure(spec), calibration):
        machine = calibration.machine
        free = "that JAX may use here" if machine["is_gpu"] else "that are free here"
        memory = f"{format_bytes(machine['memory_bytes'])} {free}"
        facts["most walkers"] = f"about {_round_down(walkers)}, extrapolated to the {memory}"
    return facts


def _round_down(number: int) -> int:
    """The number with two digits and zeros."""
    power = 10 ** max(0, len(str(number)) - 2)
    return number // power * power


def _time_words(spec: "JobSpec", calibration: Calibration, asking: Asking) -> str:
    """The time of the whole run on this machine, and how it was reckoned."""
    ceiling = spec.evaluate.steps
    hours = hours_of(spec, calibration, ceiling)
    if hours is None:
        return "not known: the calibration was too short"
    words = f"about {format_duration(3600 * hours)}, extrapolated to all steps"
    target = spec.evaluate.target_error
    if target is None:
        return words
    words = f"at most {format_duration(3600 * hours)}, extrapolated to evaluate.steps"
    if asking.steps_to_target is None:
        return f"{words}; no like run tells when target_error {target:g} is reached"
    if asking.steps_to_target > ceiling:
        return f"{words}; target_error {target:g} needs more"
    sooner = hours_of(spec, calibration, asking.steps_to_target) or hours
    reached = f"about {format_duration(3600 * sooner)} to target_error {target:g}"
    return f"{reached}, by the error of like runs; {words}"


def _document(
    task: "Task", n_runs: int, calibration: Calibration, asking: Asking
) -> dict[str, Any]:  # a JSON document
    """The output of `estimate --json`."""
    from vmcjob.spec.size import MAX_FILES, measure

    size, ceiling = measure(task.spec), task.spec.evaluate.steps
    needed = asking.steps_to_target
    if needed is None or needed > ceiling:
        to_target = None
    else:
        to_target = hours_of(task.spec, calibration, needed)
    return {
        "schema_version": 1,
        "run_id": task.run_id,
        "runs": n_runs,
        **asdict(size),
        "max_files": MAX_FILES,
        "machine": calibration.machine or None,
        "phases": calibration.phases,
        "hours": hours_of(task.spec, calibration, ceiling),
        "hours_to_target": to_target,
        "most_walkers": most_walkers(task.spec, size, calibration),
        "why_not": calibration.why_not or None,
        **asking.to_json(),
    }
