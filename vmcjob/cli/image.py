"""The command `image`: build, inspect and verify Apptainer images."""

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, Commands, app
from vmcjob.cli.hints import say_next
from vmcjob.cli.options import AsJson, SiteProfile, resolve_site
from vmcjob.cli.screen import fold, put, put_json, say
from vmcjob.cli.text import align_facts
from vmcjob.errors import UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.apptainer.container import Image
    from vmcjob.apptainer.image import Facts

MIB = 2**20
BUILT = {"device": "vmcjob.device", "vmcjob": "vmcjob.version.vmcjob", "jax": "vmcjob.version.jax"}
"""The labels that `build` shows."""
MaybeImage = Annotated[
    Path | None,
    typer.Argument(metavar="[IMAGE]", help="An Apptainer image. [default: the spec's or site's]"),
]

group = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Build, inspect or verify the image of a cluster."
)
app.add_typer(group, name="image")


@group.command(cls=Command)
def build(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The file to make.")],
    is_for_gpus: Annotated[
        bool, typer.Option("--gpu", help="For NVIDIA GPUs, with CUDA 12, cuDNN and NCCL.")
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="BASE",
            help="An image with Python 3.11: python@sha256:…, or a path. [default: Debian 12]",
        ),
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--from-wheels",
            metavar="DIR",
            help="A folder of all packages, as containers/build --save-wheels makes it.",
        ),
    ] = None,
    checkout: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="A checkout of vmcjob. [default: this directory, else the installed package]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image from a checkout, or the installed package: for CPUs without --gpu."""
    from vmcjob.apptainer import image as images
    from vmcjob.apptainer.checkout import find_checkout

    with find_checkout(checkout) as place:
        facts = images.build(place, image, images.Recipe(is_for_gpus, base, wheels))
    _put_facts(facts, as_json, has_all_labels=False)
    _say_how_to_use(image.absolute())


def _say_how_to_use(image: Path) -> None:
    """Print the line that the site profile needs, unless it is there, and the next commands."""
    from vmcjob.site import find_profile

    named, place = None, "~/.config/vmcjob/site.toml, which vmcjob init --cluster writes"
    with suppress(VmcJobError):  # a mistake in the profile does not spoil the image
        named = resolve_site(None, None).container.image
        place = str(find_profile(None, os.environ) or place)
    if named is None or Path(named).absolute() != image:
        words = fold(f"write this line into [container] of {place}:", sys.stderr)
        say(f"\n{words}\n\n  image = {json.dumps(str(image))}")
    say_next("doctor", "doctor --on-node", "init --molecule H2O")


@group.command(cls=Command)
def inspect(image: MaybeImage = None, site: SiteProfile = None, as_json: AsJson = False) -> None:
    """Show an image's sha256, labels and versions, without starting it."""
    from vmcjob.apptainer import image as images

    _put_facts(images.inspect(_find(image, None, site).path), as_json)


@group.command(cls=Command)
def verify(
    image: MaybeImage = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="SPEC", help="Whose [container] counts.")
    ] = None,
    site: SiteProfile = None,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256",
            metavar="DIGEST",
            help="That the image must have. [default: the pin of the spec, else of the site]",
        ),
    ] = None,
    is_tested: Annotated[
        bool, typer.Option("--test/--no-test", help="Run the image's own test: a tiny VMC run.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check that an image is the pinned one and works."""
    from vmcjob.apptainer import image as images

    found = _find(image, spec, site)
    if sha256 is not None:
        found = replace(found, pinned=sha256.lower())
    digest = images.verify(found, is_tested=is_tested)
    facts = {
        "image": str(found.path),
        "sha256": digest,
        "pin": "matches" if found.pinned else "none",
        "test": "passed" if is_tested else "not run",
    }
    put_json({"schema_version": 1} | facts) if as_json else put(align_facts(facts))


def _find(path: Path | None, spec_path: Path | None, profile: Path | None) -> "Image":
    """The named image, else the spec's, else the site's; with its pin.

    A pin belongs to one image, so it does not apply to another named image.
    """
    from vmcjob.apptainer.container import Image, find_image
    from vmcjob.spec import Container, read_spec

    containers = resolve_site(profile, None).container
    wish = read_spec(spec_path).points[0].spec.container if spec_path else Container()
    known = find_image(wish, containers)
    if path is None:
        if known is None:
            raise UsageError("which image? Name one, or a spec or site whose [container] has one")
        return known
    is_known = known is not None and known.path.resolve() == path.resolve()
    pin = known.pinned if known and is_known else wish.sha256
    return Image(path.absolute(), pin, containers.options)


def _put_facts(facts: "Facts", as_json: bool, *, has_all_labels: bool = True) -> None:
    """Print the facts of an image as text or JSON."""
    if as_json:
        document = {"image": str(facts.path.absolute()), "sha256": facts.sha256}
        document |= {"size_bytes": facts.size_bytes, "labels": dict(facts.labels)}
        put_json({"schema_version": 1} | document)
        return
    labels = dict(sorted(facts.labels.items()))
    if not has_all_labels:
        labels = {name: labels.get(label, "") for name, label in BUILT.items()}
    size = f"{facts.size_bytes / MIB:.0f} MiB"
    put(align_facts({"image": str(facts.path), "sha256": facts.sha256, "size": size} | labels))
