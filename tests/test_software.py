"""Optimizers that need other releases, images without GPUs: told before a job waits for hours."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cli.shell import finish
from vmcjob import __version__, scheduler
from vmcjob.apptainer import image
from vmcjob.cli.before import _require_usable_gpus
from vmcjob.cli.devices import LABEL, asks_in_vain, notes_on_unused_gpus, require_usable_gpus
from vmcjob.cli.software import lacks, warn_of_versions
from vmcjob.errors import ContainerError, UsageError
from vmcjob.plan import Plan, make_plan
from vmcjob.resources import Request
from vmcjob.rundir import RunDir
from vmcjob.scheduler import SubmissionOptions
from vmcjob.scheduler.records import make_record
from vmcjob.site import Containers, Site
from vmcjob.spec import dump_spec, parse_spec, software

TEXT = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'
KFAC = 'optimizer.kind = "kfac"\n'
OLD = {"jax": "0.10.2", "kfac-jax": "0.0.8"}
NEW = {"jax": "0.12.0.1", "kfac-jax": "0.0.8"}


def plan_of(text: str) -> Plan:
    return make_plan(parse_spec(text, "h.toml"))


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        (OLD, None),
        (NEW | {"jax": "0.11.0"}, "kfac-jax 0.0.8 does not run on JAX 0.11.0"),
        (NEW, "kfac-jax 0.0.8 does not run on JAX 0.12.0.1"),
        (NEW | {"kfac-jax": "0.0.9"}, None),  # a later release may run
        ({"jax": "0.10.2"}, "kfac needs the package kfac-jax"),
        ({}, None),  # releases that nobody has recorded
    ],
)
def test_kfac_needs_releases_that_go_together(versions, words):
    """Catches a comparison of versions as text, by which 0.9.1 would be newer than 0.11."""
    spec = plan_of(TEXT + KFAC).tasks[0].spec
    found = software.why_not(spec, versions)
    assert found == (None if words is None else f"optimizer.kind: {words}; {software.REMEDY}")
    assert software.why_not(plan_of(TEXT).tasks[0].spec, NEW) is None


def test_what_is_installed_is_found_without_importing_it():
    """This environment's own releases; JAX is always there."""
    assert software.installed().keys() >= {"jax"}
    assert software.installed()["jax"][:2] == "0."


def test_an_image_says_which_releases_it_has(monkeypatch):
    """A cluster's image counts, not this Python; where it cannot be asked, nothing is said."""
    monkeypatch.setattr(software, "installed", lambda: OLD)
    labels = {f"vmcjob.version.{name}": version for name, version in NEW.items()}
    asked = []

    def labels_of(path: Path) -> dict[str, str]:
        asked.append(path)
        if path.name == "unreadable.sif":
            raise ContainerError("no apptainer")
        return labels

    monkeypatch.setattr(image, "labels_of", labels_of)
    plan = plan_of(TEXT + KFAC)
    assert lacks(plan, Containers()) is None
    words = lacks(plan, Containers(image="/images/new.sif"))
    assert words is not None
    assert words.startswith("h.toml: optimizer.kind: kfac-jax 0.0.8 does not run on JAX 0.12.0.1")
    assert lacks(plan, Containers(image="/images/unreadable.sif")) is None
    assert asked == [Path("/images/new.sif"), Path("/images/unreadable.sif")]  # once each
    other = replace(plan, tasks=plan_of(TEXT).tasks)
    assert lacks(other, Containers(image="/images/other.sif")) is None
    assert len(asked) == 2  # nor where no optimizer minds


def test_an_image_of_another_release_is_named_once(monkeypatch):
    """Its workers would refuse keys that only this release knows, after hours in a queue."""
    releases = {"old": "0.0.1", "same": __version__}

    def labels_of(path: Path) -> dict[str, str]:
        return {"vmcjob.version.vmcjob": releases[path.stem]} if path.stem in releases else {}

    monkeypatch.setattr(image, "labels_of", labels_of)
    plans = [plan_of(TEXT), plan_of(TEXT)]
    (words,) = warn_of_versions(plans, Containers(image="/releases/old.sif"))
    assert words.startswith("warning: /releases/old.sif: has vmcjob 0.0.1, and this is ")
    for silent in ("/releases/same.sif", "/releases/without-labels.sif", None):
        assert warn_of_versions(plans, Containers(image=silent)) == []


@pytest.fixture
def jobs(monkeypatch):
    """Options of jobs in an image, whose name says for which devices the image is."""
    monkeypatch.setattr(image, "labels_of", lambda path: {LABEL: path.stem})

    def options(name: str, gres: str | None = None) -> SubmissionOptions:
        site = Site(container=Containers(image=f"/devices/{name}.sif"))
        return SubmissionOptions(Path("runs"), site, Request(gres=gres))

    return options


def test_gpus_in_an_image_for_cpus_are_refused(jobs):
    """The job waited for a GPU, and then ended because JAX found none."""
    plan, without = plan_of(TEXT), plan_of(TEXT + "resources.gpus = 0")
    with pytest.raises(UsageError) as refused:
        require_usable_gpus([without, plan], jobs("cpu"))
    assert str(refused.value) == (
        "h.toml: its jobs ask for 1 GPU per node, and /devices/cpu.sif is for CPUs; submit the "
        "spec with gpus = 0 in [resources], or use an image of vmcjob image build --gpu"
    )
    words = asks_in_vain(without, jobs("cpu", "gpu:a100:2"))  # a gres goes before the spec's gpus
    assert words is not None
    assert "ask for 2 GPUs per node" in words
    assert "leave the gres gpu:a100:2 out" in words
    assert asks_in_vain(plan, jobs("cpu", "nvme:1")) is None
    assert asks_in_vain(plan, jobs("cuda12")) is None
    assert asks_in_vain(plan, SubmissionOptions(Path("runs"))) is None  # no image


def test_only_runs_that_are_submitted_ask_for_gpus(jobs, tmp_path, monkeypatch):
    """A finished run with a GPU kept `resume` from going on with another one on CPUs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plans = [plan_of(TEXT), plan_of(f"seed = 1\n{TEXT}resources.gpus = 0")]
    (task,) = plans[0].tasks
    run = RunDir.create(tmp_path / "runs", make_record("h.toml", task), dump_spec(task.spec))
    check = partial(_require_usable_gpus, scheduler.choose("slurm", False), plans)
    options = replace(jobs("cpu"), root=tmp_path / "runs")
    with pytest.raises(UsageError, match="ask for 1 GPU per node"):
        check(options)
    finish(run)
    check(options)


def test_an_image_for_gpus_that_gets_none_is_named(jobs):
    """A forgotten `gpus = 0` costs days on CPUs; a run may mean it, so it is no mistake."""
    plans = [plan_of(TEXT), plan_of(TEXT + "resources.gpus = 0")]
    assert list(notes_on_unused_gpus(plans, jobs("cuda12"))) == [
        "h.toml: asks for no GPU, so /devices/cuda12.sif, made for GPUs, uses CPUs"
    ]
    assert list(notes_on_unused_gpus(plans, jobs("cpu"))) == []
