"""Messages of validate and submit about releases that do not fit a spec or an image."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vmcjob.errors import ContainerError, UsageError
from vmcjob.version import __version__

if TYPE_CHECKING:
    from vmcjob.plan import Plan
    from vmcjob.site import Containers
    from vmcjob.spec import JobSpec
    from vmcjob.spec.software import Versions


def lacks(plan: "Plan", containers: "Containers | None" = None) -> str | None:
    """One sentence about a run of the plan that cannot run where jobs run; None if all can, or may.

    Args:
        plan: what will run.
        containers: the cluster's own; None for this process's Python.
    """
    from vmcjob.spec import software

    choosy = [task.spec for task in plan.tasks if software.depends_on_releases(task.spec)]
    reasons = (software.why_not(spec, _versions(spec, containers)) for spec in choosy)
    return next((f"{plan.source}: {reason}" for reason in reasons if reason), None)


def require_software(plans: "Sequence[Plan]", containers: "Containers | None") -> None:
    """UsageError if a run cannot run where jobs run; see `lacks`."""
    if found := [words for plan in plans if (words := lacks(plan, containers))]:
        raise UsageError("\n".join(found))


def warn_of_versions(plans: "Sequence[Plan]", containers: "Containers") -> list[str]:
    """A warning for each image whose vmcjob is another release than this one.

    A worker refuses keys of a spec that its release does not know, after hours in a queue.
    """
    from vmcjob.apptainer.container import find_image

    specs = [task.spec for plan in plans for task in plan.tasks]
    found = (find_image(spec.container, containers) for spec in specs)
    paths = list(dict.fromkeys(image.path for image in found if image is not None))
    releases = {path: _versions_in(path).get("vmcjob", __version__) for path in paths}
    return [
        f"warning: {path}: has vmcjob {release}, and this is {__version__}; "
        "vmcjob image build makes an image of this release"
        for path, release in releases.items()
        if release != __version__
    ]


def _versions(spec: "JobSpec", containers: "Containers | None") -> "Versions":
    """The releases that a run will find, as far as they are known here."""
    from vmcjob.apptainer.container import find_image
    from vmcjob.spec import software

    image = find_image(spec.container, containers) if containers else None
    return software.installed() if image is None else _versions_in(image.path)


def _versions_in(image: Path) -> "Versions":
    """The releases in an image; none are known where Apptainer cannot be asked."""
    from vmcjob.spec import software

    return software.labelled(labels_in(image))


@cache
def labels_in(image: Path) -> Mapping[str, str]:
    """The labels of an image; empty where Apptainer cannot be asked."""
    from vmcjob.apptainer.image import labels_of

    try:
        return labels_of(image)
    except ContainerError:  # login nodes need not have Apptainer
        return {}
