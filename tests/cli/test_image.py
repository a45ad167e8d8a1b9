"""image, as users type it; what Apptainer does is in tests/test_image.py."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.shell import Shell

CONTAINERS = Path(__file__).parents[2] / "containers"


def make_program(folder: Path, name: str, script: str) -> None:
    """A command on the shell's PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def write_profile(shell: Shell, **keys: str) -> tuple[str, str]:
    """An image with a site that names it; the options that lead to that site."""
    (shell.cwd / "vmc.sif").write_bytes(b"an image")
    values = {"image": f"{shell.cwd}/vmc.sif"} | keys
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    (shell.cwd / "site.toml").write_text("\n".join(["[container]", *lines]))
    return "--site", "site.toml"


def test_verify_takes_image_and_pin_of_the_site(shell):
    digest = hashlib.sha256(b"an image").hexdigest()
    make_program(shell.cwd, "apptainer", "echo passed")
    site = write_profile(shell, sha256=digest)
    done = shell.run("image", "verify", "--json", *site)
    assert (done.returncode, done.stderr) == (0, "passed\n")
    assert json.loads(done.stdout) == {
        "schema_version": 1,
        "image": f"{shell.cwd}/vmc.sif",
        "sha256": digest,
        "pin": "matches",
        "test": "passed",
    }
    (shell.cwd / "other.sif").write_bytes(b"another")
    done = shell.run("image", "verify", "other.sif", "--no-test", *site)
    assert done.returncode == 0
    assert "pin     none\n" in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("image verify", 2, "which image? Name one, or a spec or site"),
        ("image inspect absent.sif", 4, "absent.sif: no such file\n"),
        ("image verify absent.sif", 4, "absent.sif: no such file\n"),
        ("image inspect vmc.sif", 6, "apptainer is not on PATH"),
        ("image verify vmc.sif", 6, "apptainer is not on PATH"),
        ("image verify --sha256 00 vmc.sif", 6, "and the pin asks for 00"),
        ("image verify --spec absent.toml", 4, "absent.toml: no such file"),
        ("image build new.sif", 4, "containers/build: no such file; is . a checkout of vmcjob?"),
    ],
)
def test_what_cannot_be_ends_in_a_sentence(shell, command, code, message):
    write_profile(shell)
    done = shell.run(*command.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_new_image_says_which_line_leads_jobs_to_it(shell):
    """The next step was to find the key in a page, and to guess the file."""
    make_program(shell.cwd, "apptainer", 'echo \'{"data": {"attributes": {"labels": null}}}\'')
    (shell.cwd / "containers").mkdir()
    make_program(shell.cwd / "containers", "build", 'echo image >"$1"')
    done = shell.run("image", "build", "new.sif", "--from", ".")
    assert done.returncode == 0, done.stderr
    line = f'\n  image = "{shell.cwd}/new.sif"\n'
    assert line in done.stderr
    assert "write this line into [container] of ~/.config/vmcjob/site.toml" in done.stderr
    assert "\n  vmcjob doctor --on-node\n" in done.stderr
    own = shell.cwd / ".config" / "vmcjob" / "site.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f"[container]{line}")
    done = shell.run("image", "build", "new.sif", "--from", ".")
    assert line not in done.stderr
    assert "\n  vmcjob doctor --on-node\n" in done.stderr
    own.write_text("no TOML [")
    done = shell.run("image", "build", "new.sif", "--from", ".")
    assert (done.returncode, line in done.stderr) == (0, True)


@pytest.mark.parametrize(("command", "code"), [("validate", 0), ("submit -n", 2), ("submit", 2)])
def test_gpus_in_an_image_for_cpus_are_told_before_a_job_waits(shell, command, code):
    """Without a look at the label, SLURM gave the job a GPU, and the worker found no device."""
    labels = '{"data": {"attributes": {"labels": {"vmcjob.device": "cpu"}}}}'
    make_program(shell.cwd, "apptainer", f"echo '{labels}'")
    write_profile(shell)
    profile = (shell.cwd / "site.toml").read_text()
    (shell.cwd / "site.toml").write_text(f'scheduler = "slurm"\n{profile}')
    done = shell.run(*command.split(), "--site", "site.toml", "h.toml")
    assert done.returncode == code
    words = "h.toml: its jobs ask for 1 GPU per node, and {}/vmc.sif is for CPUs; submit the spec"
    assert done.stderr.count(words.format(shell.cwd)) == 1
    assert not shell.runs.exists()
    without = ("--site", "site.toml", "--set", "resources.gpus=0", "h.toml")
    assert "GPU per node" not in shell.run(*command.split(), *without).stderr


def test_a_spec_pins_the_image_of_the_site(shell):
    site = write_profile(shell)
    with open(shell.cwd / "h.toml", "a") as spec:
        spec.write(f'[container]\nsha256 = "{"0" * 64}"\n')
    done = shell.run("image", "verify", "--no-test", "--spec", "h.toml", *site)
    assert done.returncode == 6
    assert f"the pin asks for {'0' * 64}" in done.stderr


def test_a_base_without_a_digest_is_refused_before_anything_is_done():
    """A tag may be another image tomorrow."""
    command = [CONTAINERS / "build", "--gpu", "--base", "python:3.12-slim", "x.sif"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "'python:3.12-slim': expected an image by its digest" in done.stderr


@pytest.mark.parametrize(
    ("device", "own"), [("cpu", set()), ("cuda12", {"jax-cuda12-plugin", "nvidia-nccl-cu12"})]
)
def test_the_lock_files_pin_every_package_by_hash(device, own):
    """pip installs nothing of them without one; JAX brings its CUDA packages along."""
    lines = (CONTAINERS / f"requirements-{device}.txt").read_text("utf-8").splitlines()
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in lines if line[:1] != "#"))
    entry_form = re.compile(r"[\w.-]+==[\w.]+( \\\n    --hash=sha256:[0-9a-f]{64})+")
    assert all(entry_form.fullmatch(entry) for entry in entries)
    names = {entry.partition("==")[0] for entry in entries}
    assert {"jax", "kfac-jax", "zarr", "pyscf", "submitit", *own} <= names


@pytest.mark.parametrize("device", ["cpu", "cuda12"])
def test_the_lock_files_have_all_that_the_package_asks_for(device):
    """An image without a package that pyproject.toml names fails its own `pip check`."""
    project = tomllib.loads((CONTAINERS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[^\w.-]", one)[0] for one in project["dependencies"]}
    lock = (CONTAINERS / f"requirements-{device}.txt").read_text("utf-8")
    assert wanted <= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))


@pytest.mark.full_matrix  # whoever builds an image runs the script in it: cluster/test_container.py
@pytest.mark.slow
def test_the_self_test_of_images_goes_from_spec_to_energy(shell):
    """Here outside of an image: the same script, with this vmcjob on PATH."""
    make_program(shell.cwd, "vmcjob", f'exec {sys.executable} -m vmcjob "$@"')
    environment = shell.environment | {"JAX_PLATFORMS": "cpu", "TMPDIR": str(shell.cwd)}
    package = environment.pop("PYTHONPATH")
    make_program(shell.cwd, "vmcjob", f'PYTHONPATH={package} exec {sys.executable} -m vmcjob "$@"')
    environment["PATH"] = f"{shell.cwd}{os.pathsep}/usr/bin{os.pathsep}/bin"
    before = set(os.listdir(shell.cwd))
    done = subprocess.run(
        [CONTAINERS / "selftest"], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version, passed = done.stdout.splitlines()
    assert version.startswith("vmcjob ")
    assert passed == "selftest: passed: a hydrogen atom went from its spec to its energy"
    assert set(os.listdir(shell.cwd)) == before
