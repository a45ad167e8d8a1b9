"""Shell completion of the words that commands take: runs, spec files, keys of a spec.

A completion that fails is empty: a message would end up on the line that is being typed.
"""

import os
from pathlib import Path
from typing import Any  # Typer does not export the type of a context

from vmcjob.errors import VmcJobError

LATEST = "@last"


def complete_runs(ctx: Any, incomplete: str) -> list[str]:
    """The names of specs and the ids of runs, in the runs root that the line so far names."""
    from vmcjob.cli.options import resolve_site

    profile, runs = ctx.params.get("site"), ctx.params.get("runs")
    try:
        root = resolve_site(profile and Path(profile), runs and Path(runs)).runs
        ids = [name for name in os.listdir(root) if not name.startswith(".")]
    except (VmcJobError, OSError):
        return []
    names = dict.fromkeys(run_id.rpartition("-")[0] for run_id in sorted(ids))
    return [word for word in (LATEST, *names, *sorted(ids)) if word and word.startswith(incomplete)]


def complete_specs(incomplete: str) -> list[str]:
    """The TOML files that begin like a word, here or in a folder that does."""
    folder, slash, begin = incomplete.rpartition("/")
    before, found = folder + slash, list[str]()
    for entry in _entries(before or "."):
        if entry.name.startswith(begin) and not entry.name.startswith("."):
            inside = _entries(entry.path) if entry.is_dir() else ()
            found += [f"{before}{entry.name}/{one.name}" for one in inside]
            found += [f"{before}{entry.name}"]
    return sorted(name for name in found if name.endswith(".toml"))


def complete_keys(incomplete: str) -> list[str]:
    """The tables and keys of a spec."""
    from vmcjob.cli.keys import spec_keys

    found: dict[str, None] = {}
    for row in spec_keys():
        found[row.key.partition(".")[0]] = None
        found[row.key] = None
    return [key for key in found if key.startswith(incomplete)]


def complete_changes(incomplete: str) -> list[str]:
    """The keys of a spec, each with the sign before its value: sampler.walkers="""
    return [f"{key}=" for key in complete_keys(incomplete) if "." in key]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder; none if it cannot be read."""
    try:
        return list(os.scandir(folder))
    except OSError:
        return []
