"""Apptainer images: build one from a checkout, read its labels, and test it.

Apptainer is called only here and in jobs; its output goes to standard error at once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmcjob.apptainer.container import Image, digest, host_environment
from vmcjob.apptainer.trial import last_line, try_start
from vmcjob.errors import ContainerError, NotFoundError

MISSING = 'apptainer is not on PATH; load its module, or see README\'s "On a cluster"'


@dataclass(frozen=True)
class Facts:
    """Facts about an image that is not started."""

    path: Path
    sha256: str
    size_bytes: int
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """How an image is built: for which devices, and from what."""

    is_for_gpus: bool = False
    base: str | None = None  # an image with Python 3.11; None for a Debian root
    wheels: Path | None = None  # a folder of all packages; None to fetch them

    def options(self) -> Sequence[str]:
        """The options of `containers/build`."""
        words = ["--gpu"] if self.is_for_gpus else []
        words += ["--base", self.base] if self.base is not None else []
        return words + (["--from-wheels", str(self.wheels)] if self.wheels is not None else [])


def build(checkout: Path, target: Path, recipe: Recipe) -> Facts:
    """Build an image of a checkout.

    Returns the facts of the new image. ContainerError if it cannot be built.
    """
    script = checkout / "containers" / "build"
    if not script.is_file():
        asked = f"is {checkout} a checkout of vmcjob? --from DIR names one"
        raise NotFoundError(f"{script}: no such file; {asked}")
    environ = {"PYTHON": sys.executable} | os.environ
    code = _run([str(script.absolute()), *recipe.options(), str(target)], environ)
    if code:
        raise ContainerError(f"{target}: not built; {script} ended with exit code {code}")
    return inspect(target)


def inspect(path: Path) -> Facts:
    """Digest, size and labels of an image; ContainerError or NotFoundError without one."""
    _require(path)
    sha256 = digest(path.absolute())
    return Facts(path, sha256, path.stat().st_size, labels_of(path))


def labels_of(path: Path) -> dict[str, str]:
    """The labels of an image, without reading the whole file; ContainerError if unreadable."""
    try:
        done = subprocess.run(
            ["apptainer", "inspect", "--json", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=host_environment(os.environ),
            check=False,
        )
    except FileNotFoundError:
        raise ContainerError(MISSING) from None
    except OSError as error:
        raise ContainerError(f"apptainer: {error.strerror}") from None
    try:
        labels = json.loads(done.stdout)["data"]["attributes"]["labels"]
    except (ValueError, KeyError, TypeError):
        said = last_line(done.stderr) or f"exit code {done.returncode}"
        raise ContainerError(f"{path}: apptainer cannot inspect it: {said}") from None
    return dict(labels or {})


def verify(image: Image, *, is_tested: bool = True) -> str:
    """The sha256 of an image, after checking the pinned sha256 and running the image's own test.

    ContainerError says what is wrong, NotFoundError that the file does not exist.
    """
    _require(image.path)
    found = image.digest()
    if is_tested:
        line = ("apptainer", "test", "--cleanenv", "--no-home", *image.options, str(image.path))
        if code := _run(line, host_environment(os.environ)):
            words = f"{image.path}: its own test ended with exit code {code}"
            raise ContainerError(f"{words}{try_start(image.options).advice}")
    return found


def _require(path: Path) -> None:
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: no such file")


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit code of a command; its output goes to standard error."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environ, check=False
        ).returncode
    except FileNotFoundError:
        raise ContainerError(MISSING) from None
    except OSError as error:
        raise ContainerError(f"{command[0]}: {error.strerror}") from None
