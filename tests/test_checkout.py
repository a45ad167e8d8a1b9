"""The checkout that `image build` uses, with and without one at hand."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tomli
from hatchling import build

from vmcjob.apptainer.checkout import PACKAGE, SCRIPT, find_checkout

ROOT = Path(__file__).parents[1]
INCLUDED = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["force-include"]


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """What a wheel has in vmcjob/shipped, by the words of pyproject.toml."""
    for source, target in INCLUDED.items():
        place = tmp_path / Path(target).relative_to("vmcjob/shipped")
        files = [source] if (ROOT / source).is_file() else os.listdir(ROOT / source)
        for name in files:
            whole = ROOT / source if name == source else ROOT / source / name
            goal = place if name == source else place / name
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.write_bytes(whole.read_bytes())
    return tmp_path


def test_an_installed_package_is_put_together_as_a_checkout(
    shipped, tmp_path_factory, monkeypatch
) -> None:
    """A file that the wheel lacks, or a script that is not executable, would stop the build."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    with find_checkout(None, shipped) as made:
        assert os.access(made / SCRIPT, os.X_OK)
        for name in ("requirements-cpu.txt", "requirements-cuda12.txt", "vmcjob.def", "selftest"):
            assert (made / "containers" / name).read_bytes() == (
                ROOT / "containers" / name
            ).read_bytes()
        project = tomli.loads((made / "pyproject.toml").read_text("utf-8"))
        needed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
        assert all((made / name).exists() for name in [*needed, project["project"]["readme"]])
        assert (made / "vmcjob" / "version.py").read_bytes() == (
            PACKAGE / "version.py"
        ).read_bytes()
    assert not made.exists()


def test_a_checkout_at_hand_or_named_is_used_itself(shipped, monkeypatch) -> None:
    """A change of the checkout has to be in the image."""
    monkeypatch.chdir(ROOT)
    with find_checkout(None, shipped) as here:
        assert here.samefile(ROOT)
    with find_checkout(Path("elsewhere"), shipped) as named:
        assert named == Path("elsewhere")


@pytest.mark.timeout(180)
def test_the_source_distribution_makes_a_package_that_works_alone(tmp_path, monkeypatch) -> None:
    """A file that the source distribution lacks is lacking in every package built from it."""
    monkeypatch.chdir(ROOT)
    names = set(zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))).namelist())
    sources = tmp_path / build.build_sdist(str(tmp_path))
    with tarfile.open(sources) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(sources.with_name(sources.name.removesuffix(".tar.gz")))
    wheel = zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path)))
    assert set(wheel.namelist()) == names
    installed = tmp_path / "installed"
    wheel.extractall(installed)
    for words in (["schema"], ["init", "new"], ["validate", "new/h2.toml"]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "vmcjob", *words],
            cwd=installed.parent,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert str(ROOT) not in done.stdout + done.stderr
