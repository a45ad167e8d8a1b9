"""Workers in an Apptainer image: the exact command line and the environment inside."""

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vmcjob.errors import ContainerError
from vmcjob.protocol import IMAGE_SHA256, JAX_CACHE
from vmcjob.rundir import RunDir
from vmcjob.site import Containers
from vmcjob.spec import Container

DEFAULT_CACHE = "~/.cache/vmcjob"
NO_CACHE = "off"
_CACHE_DIGITS = 16  # digits of the image's sha256, enough for the images of one user
_PASSED_ON = re.compile(
    r"(CUDA_VISIBLE_DEVICES|CUDA_MPS_.*|NVIDIA_.*|SLURM_(?!JWT$).*|JAX_.*|XLA_.*|NCCL_.*|OMP_.*|"
    r"TF_CPP_.*|VMCJOB_.*)"
)
"""Variables that the worker needs; all others, and SLURM's token, are kept out."""
_APPTAINERS = re.compile(r"(APPTAINER|SINGULARITY)(?!_(TMPDIR|CACHEDIR|CONFIGDIR)$).*")
"""Variables that Apptainer would use as options, binds and variables of the worker."""


@dataclass(frozen=True)
class Image:
    """An image, and this site's settings for running it."""

    path: Path
    pinned: str | None = None  # required sha256
    options: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()
    cache: Path | None = None  # root of the compiled programs of all images of this user

    def command(self, run: RunDir, n_gpus: int) -> tuple[str, ...]:
        """The command that starts the run's worker in the image; needs the env file."""
        path = str(run.path)
        seen = (path, *([str(self.cache)] if self.cache else []), *self.binds)
        binds = [word for bind in seen for word in ("--bind", bind)]
        return (
            "apptainer",
            "exec",
            *(["--nv"] if n_gpus else []),
            "--cleanenv",
            "--no-home",
            "--pwd",
            path,
            *binds,
            "--env-file",
            str(run.environment_path),
            *self.options,
            str(self.path),
            "vmcjob",
            "run",
            path,
        )

    def require_unchanged(self, submitted: str) -> None:
        """Raise ContainerError if the file has changed since the run was submitted."""
        if (found := digest(self.path)) != submitted:
            raise ContainerError(
                f"{self.path}: has changed since the run was submitted: its sha256 was "
                f"{submitted} and is {found}; vmcjob resume takes the new one"
            )

    def digest(self) -> str:
        """Its sha256; ContainerError if it is missing or not the pinned image."""
        found = digest(self.path)
        if self.pinned is not None and found != self.pinned:
            raise ContainerError(
                f"{self.path}: its sha256 is {found}, and the pin asks for {self.pinned}"
            )
        return found


def find_image(spec: Container, site: Containers) -> Image | None:
    """The image of a spec, else the site's; None if neither names one.

    ContainerError if the site does not allow images from the folder of the spec's image.
    """
    path = spec.image or site.image
    if path is None:
        return None
    if spec.image and site.image_folders:
        _refuse_outside(Path(spec.image), site.image_folders)
    pinned = spec.sha256 or (None if spec.image else site.sha256)
    cache = None
    if site.compile_cache != NO_CACHE:
        cache = Path(site.compile_cache or DEFAULT_CACHE).expanduser().absolute()
        refuse_unbindable(cache)
    return Image(Path(path).absolute(), pinned, site.options, site.binds, cache)


def _refuse_outside(image: Path, folders: Sequence[str]) -> None:
    """Refuse an image outside of these folders, after links are resolved."""
    if not any(image.resolve().is_relative_to(Path(folder).resolve()) for folder in folders):
        raise ContainerError(
            f"container.image: {image.resolve()} is outside of {', '.join(folders)}, the only "
            "folders for images in the site profile; move the image there, or leave the key out"
        )


@cache
def digest(path: Path) -> str:
    """The sha256 of an image; ContainerError if it is unreadable or not a regular file."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ContainerError(
            f"{path}: is not a regular file; expected an image from vmcjob image build"
        )
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        advice = "" if os.path.lexists(path) else "; vmcjob image build makes an image"
        raise ContainerError(f"{path}: cannot be read: {error.strerror}{advice}") from None


def refuse_unbindable(path: Path) -> None:
    """ContainerError for a path with ':' or ',', where Apptainer would split it."""
    if any(letter in str(path) for letter in ":,"):
        raise ContainerError(f"{path}: a path with ':' or ',' cannot be bound into a container")


def without_cache(command: Sequence[str], cache: Path) -> list[str]:
    """The command of an image that does not see the folder of compiled programs."""
    words = list(command)
    bind = ["--bind", str(cache)]
    places = (n for n in range(len(words)) if words[n : n + 2] == bind)
    place = next(places, None)
    return words if place is None else words[:place] + words[place + 2 :]


def make_cache(cache: Path, sha256: str) -> Path:
    """The folder of compiled programs for one image; no other user may write there.

    JAX runs the programs in this folder, and does not check whether they fit the image.
    """
    folder = cache / sha256[:_CACHE_DIGITS]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise ContainerError(
            f"{folder}: cannot be made: {error.strerror}; set compile_cache to another folder in "
            'the site\'s [container], or "off"'
        ) from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise ContainerError(
            f"{folder}: others may write there, and JAX would run their programs; make it yours, "
            "or set compile_cache to another folder in the site's [container]"
        )
    return folder


def host_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of Apptainer itself, without variables that change what a worker sees.

    Only the command line and the env file do that, and both are shown to the user.
    """
    return {name: value for name, value in environ.items() if not _APPTAINERS.fullmatch(name)}


def environment(
    environ: Mapping[str, str], sha256: str, *, has_gpus: bool, cache: Path | None = None
) -> str:
    """The env file of one task: settings of SLURM and of the user for JAX, and nothing else.

    Apptainer reads it like a shell, so every value is quoted. `cache` is the image's own folder of
    compiled programs.
    """
    own = {"PYTHONNOUSERSITE": "1", IMAGE_SHA256: sha256}
    if cache is not None and JAX_CACHE not in environ:
        own[JAX_CACHE] = str(cache)
    if has_gpus and "JAX_PLATFORMS" not in environ:
        own["JAX_PLATFORMS"] = "cuda"  # a missing GPU is an error, not a slow run
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in _chosen(environ, own))


def _chosen(environ: Mapping[str, str], own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted({**environ, **own}.items()):
        if (name in own or _PASSED_ON.fullmatch(name)) and "\n" not in value:
            yield name, value
