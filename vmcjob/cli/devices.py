"""Messages of validate and submit about GPUs that jobs ask for and their image cannot use."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from vmcjob.cli.software import labels_in
from vmcjob.cli.text import count
from vmcjob.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from vmcjob.plan import Plan
    from vmcjob.scheduler import SubmissionOptions

LABEL: Final = "vmcjob.device"
"""The label of an image that names its devices; `containers/vmcjob.def` writes it."""
FOR_CPUS: Final = "cpu"


def require_usable_gpus(plans: "Sequence[Plan]", options: "SubmissionOptions") -> None:
    """UsageError if jobs of a cluster ask for GPUs, and their image is for CPUs."""
    if found := [words for plan in plans if (words := asks_in_vain(plan, options))]:
        raise UsageError("\n".join(found))


def asks_in_vain(plan: "Plan", options: "SubmissionOptions") -> str | None:
    """One sentence about jobs that ask for GPUs, while their image is for CPUs; else None.

    Their workers are told to compute on GPUs, and would end without a device.
    """
    for image, device, n_gpus, gres in _asked(plan, options):
        if n_gpus and device == FOR_CPUS:
            fewer = "submit the spec with gpus = 0 in [resources]"
            return (
                f"{plan.source}: its jobs ask for {count(n_gpus, 'GPU')} per node, and {image} is "
                f"for CPUs; {f'leave the gres {gres} out' if gres else fewer}, or use an image of "
                "vmcjob image build --gpu"
            )
    return None


def notes_on_unused_gpus(plans: "Sequence[Plan]", options: "SubmissionOptions") -> Iterator[str]:
    """A note for each plan whose image is for GPUs, while its jobs ask for none."""
    for plan in plans:
        for image, device, n_gpus, _ in _asked(plan, options):
            if not n_gpus and device not in (None, FOR_CPUS):
                yield f"{plan.source}: asks for no GPU, so {image}, made for GPUs, uses CPUs"
                break


def _asked(
    plan: "Plan", options: "SubmissionOptions"
) -> "Iterator[tuple[Path, str | None, int, str | None]]":
    """Image, its devices, GPUs per node, and the gres that asks for them, of each job."""
    from vmcjob.apptainer.container import find_image
    from vmcjob.scheduler import asked_gpus

    for task in plan.tasks:
        image = find_image(task.spec.container, options.site.container)
        if image is not None:
            device = labels_in(image.path).get(LABEL)
            yield image.path, device, *asked_gpus(task, options)
