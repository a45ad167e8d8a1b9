"""All commands: the module of each, its sentence on the help page, and examples.

A command is imported when it is used. So the help page and shell completion cost little, however
many commands there are.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command; its module in `vmcjob.cli` registers it."""

    module: str
    sentence: str  # the first of the command's docstring
    examples: tuple[str, ...] = ()


PANELS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "Write and check specs": {
        "init": Entry(
            "init",
            "Write a starter spec, with the common keys as comments.",
            ("vmcjob init --molecule H2O water", "vmcjob init --cluster"),
        ),
        "keys": Entry(
            "keys",
            "List the keys of a spec: default, accepted values, meaning.",
            ("vmcjob keys sampler optimizer.damping",),
        ),
        "schema": Entry(
            "schema",
            "Print the JSON Schema of specs or profiles, for editors.",
            ("vmcjob schema > vmcjob.schema.json",),
        ),
        "validate": Entry(
            "specs",
            "Check specs and write nothing; all complaints at once.",
            ("vmcjob validate jobs/h2.toml",),
        ),
        "estimate": Entry(
            "estimate",
            "Estimate the size, hours and memory of a spec's largest run.",
            ("vmcjob estimate jobs/h2.toml", "vmcjob estimate --no-calibration jobs/h2.toml"),
        ),
    },
    "Start and stop runs": {
        "submit": Entry(
            "submit",
            "Start the runs of the specs and return at once.",
            (
                "vmcjob submit jobs/h2.toml --follow",
                "vmcjob submit -n jobs/h2.toml --set sampler.walkers=1024 --seeds 4",
            ),
        ),
        "resume": Entry(
            "submit",
            "Go on with runs that stopped, or with finished ones for longer.",
            ("vmcjob resume h2", "vmcjob resume h2 --target-error 1e-4"),
        ),
        "rerun": Entry(
            "submit", "Begin runs anew, from their first step.", ("vmcjob rerun h2-1a2b3c4d5e",)
        ),
        "cancel": Entry(
            "runs",
            "Stop runs at a checkpoint, or take them out of the queue.",
            ("vmcjob cancel h2 --wait", "vmcjob cancel @last"),
        ),
    },
    "Watch runs": {
        "status": Entry(
            "status",
            "Show how the runs are doing, one line each.",
            ("vmcjob status -w", "vmcjob status --state failed --since 2d"),
        ),
        "show": Entry(
            "show",
            "Show all about one run: attempts, versions, spec, script.",
            ("vmcjob show h2", "vmcjob show h2 --against h2-1a2b3c4d5e"),
        ),
        "logs": Entry(
            "runs",
            "Print what the workers of one run said.",
            ("vmcjob logs -f h2", "vmcjob logs --err h2"),
        ),
    },
    "Look at results": {
        "aggregate": Entry(
            "results",
            "Turn finished runs into energies with error bars, in hartree.",
            ("vmcjob aggregate", "vmcjob aggregate h2 --json"),
        ),
        "plot": Entry(
            "plot",
            "Draw how runs converged, the curve of a sweep, or the path of a relaxation.",
            ("vmcjob plot h2", "vmcjob plot h2_curve --curve R"),
        ),
        "report": Entry(
            "report",
            "Write one page with energies, curves, pictures and specs.",
            ("vmcjob report -o report.html",),
        ),
        "export": Entry(
            "export",
            "Write the series of runs as event files of TensorBoard.",
            ("vmcjob export h2 -o events",),
        ),
    },
    "Keep house": {
        "doctor": Entry(
            "doctor",
            "Check what runs need on this machine, or on a node.",
            ("vmcjob doctor", "vmcjob doctor --on-node --site slurm/example.toml"),
        ),
        "image": Entry("image", "Build, inspect or verify the image of a cluster."),
        "archive": Entry(
            "archive",
            "Put the results of finished runs into one file each.",
            ("vmcjob archive h2",),
        ),
        "prune": Entry(
            "prune",
            "Remove old logs, records of jobs, and what `rerun` put aside.",
            ("vmcjob prune --dry-run",),
        ),
        "run": Entry(
            "worker",
            "Work on one run, here and now, until it ends.",
            ("vmcjob run runs/h2-1a2b3c4d5e",),
        ),
    },
}
HIDDEN: Final[Mapping[str, Entry]] = {
    "local-queue": Entry("worker", "Start the runs of one submission in turn.")
}
ENTRIES: Final[Mapping[str, Entry]] = {
    name: entry for panel in (*PANELS.values(), HIDDEN) for name, entry in panel.items()
}
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: entry.examples for name, entry in ENTRIES.items()},
    "image build": ("vmcjob image build --gpu vmcjob.sif",),
    "image inspect": ("vmcjob image inspect vmcjob.sif",),
    "image verify": ("vmcjob image verify vmcjob.sif",),
}
"""The examples of a command's help page, by the words after `vmcjob`."""
