"""What is checked and said before a submission: software, GPUs, keys without effect, budgets."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.cli.devices import asks_in_vain, notes_on_unused_gpus, require_usable_gpus
from vmcjob.cli.screen import fold, say
from vmcjob.cli.software import require_software, warn_of_versions
from vmcjob.cli.text import relative
from vmcjob.errors import RunDirError

if TYPE_CHECKING:
    from vmcjob.plan import Plan
    from vmcjob.rundir import Group
    from vmcjob.scheduler import SubmissionOptions
    from vmcjob.scheduler.registry import AnyBackend


def require_folder(root: Path) -> None:
    """RunDirError if the runs root, or a folder above it, is not a folder."""
    for place in (root, *root.absolute().parents):
        if os.path.isdir(place):
            return
        if os.path.lexists(place):
            subject = "the runs root" if place == root else str(place)
            what = "a file, not a directory" if os.path.isfile(place) else "no directory"
            advice = "move it away, or name another runs root with --runs"
            raise RunDirError(f"{root}: {subject} is {what}; {advice}")


def say_before(backend: "AnyBackend", plans: "Sequence[Plan]", wanted: "SubmissionOptions") -> None:
    """Say where the runs go and what has no effect there; an error for runs that cannot work."""
    from vmcjob import scheduler
    from vmcjob.rundir import LOCAL
    from vmcjob.runs.notification import why_not_found

    backend.require(wanted.absolute(), plans)
    containers = None if backend.name == LOCAL else wanted.site.container
    require_software(plans, containers)
    if containers is not None:
        _require_usable_gpus(backend, plans, wanted)
        for words in warn_of_versions(plans, containers):
            say(fold(words, sys.stderr))
    where, *unheeded = backend.announce(wanted, plans)
    say(where)
    if (command := wanted.site.notify) and (problem := why_not_found(command)):
        say(f"warning: {problem}")
    unheeded += [] if containers is None else notes_on_unused_gpus(plans, wanted)
    for words in unheeded:  # name all keys of a spec that are ignored
        say(fold(words, sys.stderr), "dim")
    _say_budgets(wanted.root, scheduler.form_groups(backend.name, wanted.root, plans))


def _require_usable_gpus(
    backend: "AnyBackend", plans: "Sequence[Plan]", wanted: "SubmissionOptions"
) -> None:
    """UsageError if a run that would be submitted asks for GPUs, and its image is for CPUs."""
    from vmcjob import scheduler

    if not any(asks_in_vain(plan, wanted) for plan in plans):
        return
    draft = scheduler.draft(backend, plans, wanted, scheduler.Watch().look)
    going = {item.run_id for item in draft.receipt.submitted}
    chosen = [tuple(task for task in plan.tasks if task.run_id in going) for plan in plans]
    pairs = zip(plans, chosen, strict=True)
    require_usable_gpus([replace(plan, tasks=tasks) for plan, tasks in pairs], wanted)


def _say_budgets(root: Path, groups: "Sequence[Group]") -> None:
    """Print the use of budgets, and budgets that cannot be read."""
    from vmcjob.rundir import find_damaged_groups
    from vmcjob.runs.budget import describe

    for path in find_damaged_groups(root):
        words = "damaged, so no budget limits its runs; remove it and submit their spec again"
        say(f"warning: {relative(path)}: {words}")
    for group in groups:
        if words := describe(root, group):
            say(f"budget: {words}")
