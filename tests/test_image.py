"""Images, with a stand-in for Apptainer that notes how it was called."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

import vmcjob
from vmcjob.apptainer import image as images
from vmcjob.apptainer.container import Image
from vmcjob.apptainer.trial import Trial, try_start
from vmcjob.errors import ContainerError, NotFoundError

CONTENT = b"an image"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
BUILD = Path(__file__).parents[1] / "containers" / "build"
LABELS = {"vmcjob.device": "cpu", "vmcjob.version.jax": "0.10.2"}


@pytest.fixture
def sif(tmp_path) -> Path:
    path = tmp_path / "vmc.sif"
    path.write_bytes(CONTENT)
    return path


def test_an_image_says_what_it_is_without_being_started(sif, programs):
    programs.make("apptainer", json.dumps({"data": {"attributes": {"labels": LABELS}}}))
    facts = images.inspect(sif)
    assert (facts.sha256, facts.size_bytes, facts.labels) == (DIGEST, len(CONTENT), LABELS)
    assert programs.calls("apptainer") == [f"inspect --json {sif}"]


def test_what_is_no_image_is_refused_in_apptainers_words(sif, programs):
    programs.make("apptainer", code=255, error="FATAL: image format not recognized")
    with pytest.raises(ContainerError, match="cannot inspect it: FATAL: image format not"):
        images.inspect(sif)


def test_the_pin_is_looked_at_before_the_image_is_started(sif, programs):
    programs.make("apptainer")
    with pytest.raises(ContainerError, match=f"its sha256 is {DIGEST}, and the pin asks for 00"):
        images.verify(Image(sif, "00"))
    assert programs.calls("apptainer") == []
    assert images.verify(Image(sif, DIGEST, ("--userns",))) == DIGEST
    assert programs.calls("apptainer") == [f"test --cleanenv --no-home --userns {sif}"]
    assert images.verify(Image(sif, DIGEST), is_tested=False) == DIGEST
    assert len(programs.calls("apptainer")) == 1


def test_an_image_is_put_to_the_test_as_it_will_be_run(sif, programs, monkeypatch):
    monkeypatch.setenv("APPTAINER_BIND", "/secret")
    programs.make("apptainer", json.dumps({"data": {"attributes": {"labels": LABELS}}}))
    for call in (images.inspect, lambda path: images.verify(Image(path))):
        call(sif)
        assert "APPTAINER_BIND" not in programs.variables("apptainer")


@pytest.mark.skipif(os.geteuid() != 0, reason="making a Debian root needs root")
def test_an_image_is_built_below_the_testbed_wherever_that_is(tmp_path, programs, monkeypatch):
    """Its apptainer sees nothing else there: a base beside it would fail after all downloads."""
    base = tmp_path / "testbed"
    (base / "base").mkdir(parents=True)
    (base / "base" / ".complete").touch()
    monkeypatch.setenv("VMCJOB_TESTBED", str(base))
    monkeypatch.setenv("PATH", f"{programs.folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHON", str(programs.folder / "python"))
    programs.make("python", "3.11")
    programs.make("apptainer")
    target = tmp_path / "vmc.sif"
    target.touch()
    subprocess.run([BUILD, target], check=True, capture_output=True)
    (call,) = programs.calls("apptainer")
    assert f"--build-arg base={base / 'base'} " in call


def make_wheel(path: Path, change: str = "") -> None:
    """A wheel of this checkout's package; `change` is appended to one of its files."""
    package = BUILD.parents[1] / "vmcjob"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in package.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                more = change if file.name == "version.py" else ""
                wheel.writestr(f"vmcjob/{file.relative_to(package)}", file.read_text() + more)


def test_saved_packages_of_another_commit_are_refused(tmp_path, programs, monkeypatch):
    """The image would hold an older vmcjob than the checkout that it is said to be of."""
    monkeypatch.setenv("PATH", f"{programs.folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHON", sys.executable)
    programs.make("apptainer")
    wheels, target = tmp_path / "wheels", tmp_path / "vmc.sif"
    wheels.mkdir()
    target.touch()
    command = [BUILD, "--base", tmp_path, "--from-wheels", wheels, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{wheels}: expected one wheel of vmcjob, found 0; fill a new folder" in done.stderr
    make_wheel(wheels / "vmcjob-1-py3-none-any.whl", change="# older")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{wheels}: its wheel of vmcjob is not of this checkout" in done.stderr
    assert programs.calls("apptainer") == []
    make_wheel(wheels / "vmcjob-1-py3-none-any.whl")
    subprocess.run(command, capture_output=True, check=True)
    (call,) = programs.calls("apptainer")
    assert f"--build-arg version={vmcjob.__version__} " in call


def test_an_image_that_fails_its_own_test_is_not_verified(sif, programs):
    programs.make("apptainer", code=3)
    with pytest.raises(ContainerError, match="its own test ended with exit code 3"):
        images.verify(Image(sif))


ONLY_USERNS = """#!/bin/sh
echo "$@" >> $0.calls
case "$*" in test*) exit 1;; *--userns*) exit 0;; esac
printf 'WARNING: no passwd file\\n\\033[91mERROR  : Requesting capability set\\n\\033[0m' >&2
exit 1
"""
"""An Apptainer for a root without all capabilities, whose image fails its test anyway."""


@pytest.mark.parametrize(("options", "is_advised"), [((), True), (("--userns",), False)])
def test_an_option_that_helps_is_told(sif, programs, options, is_advised):
    """In a container of its own, root lacks CAP_SYS_RESOURCE: Apptainer names no remedy."""
    programs.make("apptainer")
    (programs.folder / "apptainer").write_text(ONLY_USERNS)
    with pytest.raises(ContainerError) as refusal:
        images.verify(Image(sif, None, options))
    assert ('options = ["--userns"] into [container]' in str(refusal.value)) is is_advised


def test_a_container_is_tried_before_there_is_an_image(programs, tmp_path, monkeypatch):
    """Which options it needs was found out after a build of minutes, and a job."""
    programs.make("apptainer")
    (programs.folder / "apptainer").write_text(ONLY_USERNS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = try_start(["--writable-tmpfs"])
    assert found.options == ("--writable-tmpfs", "--userns")
    assert found.problem == "ERROR  : Requesting capability set"
    calls = programs.calls("apptainer")
    assert [call.startswith("exec --cleanenv --no-home --bind /bin") for call in calls] == [
        True
    ] * 2
    assert try_start(["--userns"]) == Trial("", ("--userns",))
    programs.make("apptainer", code=255, error="FATAL: no namespaces\n")
    assert try_start() == Trial("FATAL: no namespaces", None)
    assert not try_start().advice
    assert not list(tmp_path.glob("vmcjob-trial-*"))


def test_without_apptainer_there_is_a_sentence(sif, programs):
    del programs  # a PATH without it
    for attempt in (lambda: images.inspect(sif), lambda: images.verify(Image(sif))):
        with pytest.raises(ContainerError, match="apptainer is not on PATH; load its module"):
            attempt()


def make_checkout(folder: Path, script: str) -> Path:
    """A folder with a build script of its own."""
    path = folder / "containers" / "build"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return folder


def test_building_hands_over_to_the_recipes_of_a_checkout(tmp_path, programs):
    """The words of the build are passed on; its exit code is believed."""
    programs.make("apptainer", json.dumps({"data": {"attributes": {"labels": None}}}))
    target = tmp_path / "new image.sif"
    checkout = make_checkout(tmp_path / "check out", "exit 2")
    with pytest.raises(ContainerError, match=r"not built; .*build ended with exit code 2"):
        images.build(checkout, target, images.Recipe())
    checkout = make_checkout(tmp_path / "other", 'echo "$@" >"$6"; [ -n "$PYTHON" ]')
    facts = images.build(checkout, target, images.Recipe(True, "python@sha256:12", tmp_path))
    assert target.read_text() == (
        f"--gpu --base python@sha256:12 --from-wheels {tmp_path} {target}\n"
    )
    assert facts.labels == {}
    with pytest.raises(NotFoundError, match=r"build: no such file; is .* a checkout of vmcjob"):
        images.build(tmp_path, target, images.Recipe())


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_not_waited_for(kind, tmp_path):
    """A pipe has no end without a writer, and /dev/zero has none at all."""
    path = tmp_path / "vmc.sif"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    for call in (images.inspect, lambda path: images.verify(Image(path))):
        with pytest.raises(ContainerError) as refusal:
            call(path)
        assert str(refusal.value) == (
            f"{path}: is not a regular file; expected an image from vmcjob image build"
        )
        assert refusal.value.exit_code == 6
