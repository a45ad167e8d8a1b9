"""The line and the environment with which a worker starts in an image."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from vmcjob.apptainer.container import Image, environment, find_image, host_environment, make_cache
from vmcjob.errors import ContainerError
from vmcjob.rundir import RunDir
from vmcjob.site import Containers
from vmcjob.spec import Container

RUN = RunDir(Path("/runs/h 1"))


def test_a_site_may_say_where_the_images_of_specs_are(tmp_path: Path) -> None:
    """A link out of the folder, or `..`, does not help; the site's own image is its own affair."""
    shared, secret = tmp_path / "shared", tmp_path / "secret.sif"
    shared.mkdir()
    secret.touch()
    (shared / "link.sif").symlink_to(secret)
    site = Containers(image="/elsewhere/site.sif", image_folders=(str(shared),))
    inside = find_image(Container(image=str(shared / "own.sif")), site)
    assert inside is not None
    assert inside.path == shared / "own.sif"
    assert find_image(Container(), site) is not None
    for path in (secret, shared / "link.sif", shared / ".." / "secret.sif"):
        with pytest.raises(ContainerError, match=f"{secret} is outside of {shared}"):
            find_image(Container(image=str(path)), site)


def test_the_line_names_what_is_seen_inside_and_nothing_else():
    data, cache = ("/data:/data:ro",), Path("/home/me/.cache/vmcjob")
    image = Image(Path("/images/vmc.sif"), None, ("--userns",), data, cache)
    assert image.command(RUN, n_gpus=2) == (
        *("apptainer", "exec", "--nv", "--cleanenv", "--no-home", "--pwd", "/runs/h 1"),
        *("--bind", "/runs/h 1", "--bind", "/home/me/.cache/vmcjob", "--bind", "/data:/data:ro"),
        *("--env-file", "/runs/h 1/container.env", "--userns", "/images/vmc.sif"),
        *("vmcjob", "run", "/runs/h 1"),
    )
    assert "--nv" not in image.command(RUN, n_gpus=0)


def test_a_task_sees_its_gpus_as_slurm_gave_them_and_no_secrets():
    """MIG devices have names, not numbers; a value with shell words is only a value."""
    host = {
        "CUDA_VISIBLE_DEVICES": "MIG-4e0a,MIG-77b1",
        "SLURM_JOB_ID": "22",
        "XLA_FLAGS": "--xla_a=$(touch x) '\"",
        "AWS_SECRET": "secret",
        "SLURM_JWT": "who has it is let in as its user",
        "PYTHONPATH": "/home",
    }
    text = environment(host, "abc", has_gpus=True)
    shown = subprocess.run(
        ["sh", "-c", f"set -a\n{text}\nenv"], env={}, capture_output=True, text=True, check=True
    )
    inside = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    inside.pop("PWD", None)
    assert inside == {
        "CUDA_VISIBLE_DEVICES": "MIG-4e0a,MIG-77b1",
        "JAX_PLATFORMS": "cuda",
        "PYTHONNOUSERSITE": "1",
        "SLURM_JOB_ID": "22",
        "VMCJOB_IMAGE_SHA256": "abc",
        "XLA_FLAGS": "--xla_a=$(touch x) '\"",
    }


def test_nothing_of_the_host_reaches_a_worker_by_apptainers_own_variables():
    """They would bind, set and hide what neither the profile nor container.env tell of."""
    kept = {"PATH": "a", "APPTAINER_TMPDIR": "b", "SINGULARITY_CACHEDIR": "c", "MY_APPTAINER": "d"}
    options = ("APPTAINERENV_SECRET", "APPTAINER_BIND", "APPTAINER_BINDPATH", "APPTAINER_NV")
    options += ("SINGULARITYENV_SECRET", "SINGULARITY_BINDPATH", "APPTAINERENV_TMPDIR")
    assert host_environment(kept | dict.fromkeys(options, "x")) == kept


def test_the_users_choice_of_a_platform_stands():
    assert "JAX_PLATFORMS=cpu\n" in environment({"JAX_PLATFORMS": "cpu"}, "abc", has_gpus=True)
    assert "JAX_PLATFORMS" not in environment({}, "abc", has_gpus=False)


def test_the_specs_image_comes_before_the_sites(tmp_path):
    site = Containers(image="/site.sif", sha256="ab" * 32, compile_cache="off")
    assert find_image(Container(), Containers()) is None
    assert find_image(Container(), site) == Image(Path("/site.sif"), "ab" * 32)
    assert find_image(Container(image="/own.sif"), site) == Image(Path("/own.sif"))
    own_home = find_image(Container(image="/own.sif"), Containers())
    assert own_home is not None
    assert own_home.cache == Path.home() / ".cache" / "vmcjob"
    assert find_image(Container(sha256="cd" * 32), site) == Image(Path("/site.sif"), "cd" * 32)


def test_an_image_is_the_one_that_was_pinned_or_an_error(tmp_path):
    path = tmp_path / "vmc.sif"
    with pytest.raises(ContainerError, match=r"vmc\.sif: cannot be read"):
        Image(path).digest()
    path.write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    assert Image(path, digest).digest() == digest
    with pytest.raises(ContainerError, match=f"is {digest}, and the pin asks for 0000"):
        Image(path, "0" * 64).digest()


def test_compiled_programs_are_kept_by_image_where_nobody_else_can_write(tmp_path):
    """JAX runs what it finds there, and a program of another image may be another program."""
    folder = make_cache(tmp_path / "cache", "ab" * 32)
    assert folder == tmp_path / "cache" / ("ab" * 8)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert make_cache(tmp_path / "cache", "ab" * 32) == folder
    text = environment({}, "ab" * 32, has_gpus=False, cache=folder)
    assert f"JAX_COMPILATION_CACHE_DIR={folder}\n" in text
    own = {"JAX_COMPILATION_CACHE_DIR": "/mine"}
    text = environment(own, "ab" * 32, has_gpus=False, cache=folder)
    assert "JAX_COMPILATION_CACHE_DIR=/mine\n" in text
    folder.chmod(0o777)
    with pytest.raises(ContainerError, match="others may write there"):
        make_cache(tmp_path / "cache", "ab" * 32)
    (tmp_path / "file").write_text("")
    with pytest.raises(ContainerError, match="cannot be made: Not a directory; set compile_"):
        make_cache(tmp_path / "file", "ab" * 32)
