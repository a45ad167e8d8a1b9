"""Commands along the path of a relaxation; runs are finished by hand."""

import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shell import Shell, busy_slot
from tests.forks import RELAXING
from tests.relaxation.fake import MINIMUM, finish
from tests.relaxation.test_path import SPEC
from tests.runs import end_everything, wait_until
from tests.scheduler import slurm_programs
from vmcjob.cli.geometries import known_paths
from vmcjob.cli.relax import go_along_paths
from vmcjob.cli.submission import CommandOptions
from vmcjob.errors import VmcJobError
from vmcjob.relaxation import path as of_path
from vmcjob.relaxation.path import go_on
from vmcjob.rundir import Activity, RunDir, list_runs
from vmcjob.rundir.relaxations import Relaxation, find_relaxations
from vmcjob.slurm import SlurmJob
from vmcjob.spec import load_resolved
from vmcjob.supervisor.sequel import EndOfJob, run_sequel
from vmcjob.supervisor.watch import Inbox

REAL = """
name = "real"
[system]
atoms = [["H", 0, 0, -0.6], ["H", 0, 0, 0.6]]
[relax]
force_tolerance = 1e-4
max_steps = 2
train_steps = 20
[ansatz]
determinants = 1
layers = 1
one_electron_width = 8
two_electron_width = 4
[sampler]
walkers = 64
warmup = 10
[pretrain]
steps = 0
[train]
steps = 100
[evaluate]
steps = 300
observables = ["forces"]
observe_every = 1
[output]
flush_seconds = 0.2
"""
PHASES = (Activity.TRAIN, Activity.EQUILIBRATE, Activity.EVALUATE, Activity.DONE)
CLI_SPEC = SPEC.replace("1e-4", "2e-3\nmax_steps = 5")


@pytest.fixture
def shell(shell: Shell) -> Shell:
    """The shell of other tests, whose commands have imported pyscf."""
    return replace(shell, modules=RELAXING)


@pytest.fixture
def relaxing(shell: Shell) -> Iterator[Shell]:
    """A shell with the spec h2.toml, where no run begins by itself."""
    (shell.cwd / "h2.toml").write_text(CLI_SPEC)
    with busy_slot(shell.runs):
        yield shell


def submitted(shell: Shell, *command: str) -> list[str]:
    """The runs that a command submits."""
    done = shell.run(*command, "--json")
    assert done.returncode == 0, done.stderr
    return [one["run_id"] for one in json.loads(done.stdout)["submitted"]]


def test_commands_lead_a_molecule_along_its_path_to_the_end(relaxing: Shell) -> None:
    """One run at a time, each by submit or resume; the tree, the table and the xyz file show it.

    A run that waits is not submitted twice.
    """
    going = submitted(relaxing, "submit", "h2.toml")
    assert len(going) == 1
    assert submitted(relaxing, "submit", "h2.toml") == []
    done = relaxing.run("plot", "--path")
    assert (done.returncode, "no geometry has results yet" in done.stderr) == (1, True)
    seen = list(going)
    for number in range(5):
        finish(RunDir(relaxing.runs / seen[-1]))
        command = ("submit", "h2.toml") if number % 2 else ("resume", seen[-1])
        preview = relaxing.run(*command, "-n") if number == 0 else None
        going = submitted(relaxing, *command)
        if not going:
            break
        assert preview is None or going[0] in preview.stdout
        seen += going
    assert 3 <= len(seen) <= 5
    done = relaxing.run("submit", "h2.toml")
    assert done.returncode == 0, done.stderr
    assert "relaxed: the largest force," in done.stdout
    assert "is below force_tolerance = 0.002" in done.stdout
    tree = relaxing.run("status", "--tree").stdout.splitlines()[1:]
    assert [line.lstrip("└─ ").partition(" ")[0] for line in tree] == seen
    table = relaxing.run("aggregate", "--xyz", "end.xyz")
    assert "H0-H1" in table.stdout
    path = json.loads(relaxing.run("aggregate", "--json").stdout)["relaxations"][0]
    assert [one["run_id"] for one in path["geometries"]] == seen
    assert path["ending"] == "below tolerance"
    (bond,) = path["geometries"][-1]["found"]["internals"]
    assert abs(bond["value"] - MINIMUM) < 4.0 * bond["error"]
    done = relaxing.run("plot", "--path", "-o", "path.svg")
    assert (done.returncode, "relaxed: the largest force" in done.stdout) == (0, True), done.stderr
    assert ">force_tolerance = 0.002<" in (relaxing.cwd / "path.svg").read_text()
    again = 'name = "again"\n[system]\nxyz = "end.xyz"\n'
    (relaxing.cwd / "again.toml").write_text(again)
    assert relaxing.run("validate", "again.toml").returncode == 0


def test_a_relaxation_is_submitted_alone(relaxing: Shell) -> None:
    """Beside another spec, --follow would leave the other's runs unwatched."""
    done = relaxing.run("submit", "h2.toml", "h.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "h2.toml: has a table [relax]" in done.stderr
    done = relaxing.run("submit", "h2.toml", "--json", "-f")
    assert done.returncode == 2
    assert "--follow makes several; choose one" in done.stderr
    assert not relaxing.runs.exists() or not list(relaxing.runs.glob("h2-*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("evaluate.observables=[]", 'set evaluate.observables = ["forces"]'),
        ("relax.fixed=[0,1]", "no atom is left to move"),
        ("relax.fixed=[7]", "there is no atom 7; expected numbers from 0 to 1"),
        ("relax.fixed=[0,0]", "0 is already in the list"),
        ("seeds=[0,1]", "one geometry is relaxed at a time, and the spec asks for 2 jobs"),
        ('system.atoms=[["H",0,0,0]]', "expected at least two atoms"),
        ("relax.max_steps=0", "expected an integer from 1"),
        ("pretrain.basis=bfd-vdz", "its Hessian is that of Hartree-Fock"),
    ],
)
def test_a_relaxation_that_cannot_be_is_refused(relaxing: Shell, change: str, words: str) -> None:
    done = relaxing.run("submit", "h2.toml", "--set", change)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not list(relaxing.runs.glob("h2-*"))


def refuse(slurm: Path, *, is_refusing: bool) -> None:
    """Have sbatch refuse all jobs from now on, or take them."""
    with slurm_programs.opened(slurm) as state:
        state["is_refusing"] = is_refusing


def note_of(shell: Shell, run_id: str) -> str:
    """The note of `status` about a run."""
    done = shell.run("status", run_id, "--json")
    (row,) = json.loads(done.stdout)["runs"]
    return row["message"]


def test_of_two_paths_from_one_run_the_one_submitted_last_goes_on(relaxing: Shell) -> None:
    """An edited [relax] would leave the old path running, and paid for, beside the new one."""
    (first,) = submitted(relaxing, "submit", "h2.toml")
    fixed = ("submit", "h2.toml", "--set", "relax.fixed=[1]")
    done = relaxing.run(*fixed)
    assert f"replaces the path to {first}, which begins with the same run" in done.stderr
    run = finish(RunDir(relaxing.runs / first))
    (second,) = submitted(relaxing, "resume", first)
    spec = load_resolved(run.beside(second).read_spec_text(), "test")
    assert spec.system.atoms[1].position == (0.0, 0.0, 0.6), "the atom is fixed"
    (other,) = submitted(relaxing, "submit", "h2.toml")
    assert other != second
    assert submitted(relaxing, "resume", first) == []
    finish(run.beside(second))
    done = relaxing.run("resume", second)
    assert (done.returncode, "submit the spec of this path again" in done.stderr) == (1, True)
    for command in (["plot", "h2", "--path"], ["aggregate", "h2", "--xyz", "end.xyz"]):
        done = relaxing.run(*command)
        assert done.returncode != 2, done.stderr
    assert f"run {other}, angstrom" in (relaxing.cwd / "end.xyz").read_text(), "the latest path"
    done = relaxing.run("aggregate", second)
    assert "2 geometries; replaced by another path from the same first run" in done.stdout
    assert "the path goes on" not in done.stdout
    assert len(submitted(relaxing, *fixed)) == 1


def test_a_path_that_is_replaced_while_its_next_geometry_is_sought_submits_no_run(
    relaxing: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search takes minutes, so that the answer from before the search is outdated."""
    (first,) = submitted(relaxing, "submit", "h2.toml")
    finish(RunDir(relaxing.runs / first))
    going = known_paths([RunDir(relaxing.runs / first)])

    def slow_go_on(*args, **kwargs) -> Relaxation:
        further = go_on(*args, **kwargs)
        others.extend(submitted(relaxing, "submit", "h2.toml", "--set", "relax.fixed=[1]"))
        return further

    others: list[str] = []
    act_in(relaxing, monkeypatch)
    monkeypatch.setattr(of_path, "go_on", slow_go_on)
    with pytest.raises(VmcJobError, match="another path from the same first run was submitted"):
        go_along_paths(going, CommandOptions(runs=relaxing.runs))
    assert {run.path.name for run in list_runs(relaxing.runs)} == {first, *others}
    assert len(others) == 1


def act_in(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the environment of a shell."""
    for name in ("HOME", "PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, shell.environment[name])
    for name in ("VMCJOB_SITE", "VMCJOB_RUNS"):
        monkeypatch.delenv(name, raising=False)


def sequel_of(root: Path, job_id: int) -> tuple[str, ...]:
    """The command that a job runs when its run has finished."""
    (request,) = root.glob(f".slurm/*/{job_id}_submitted.pkl")
    return pickle.loads(request.read_bytes()).function.sequel


def test_only_a_submission_that_was_taken_replaces_a_path(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused or a dry submission would end a path that is paid for.

    The job of a replaced path must leave a note for `status`, without advice that fails.
    """
    (shell.cwd / "bin").mkdir()
    slurm = slurm_programs.install(shell.cwd / "bin")
    cluster = replace(shell, extra={"PATH": str(shell.cwd / "bin")})
    (shell.cwd / "h2.toml").write_text(CLI_SPEC)
    (first,) = submitted(cluster, "submit", "h2.toml")
    finish(RunDir(shell.runs / first))
    (second,) = submitted(cluster, "resume", first)
    other = ("submit", "h2.toml", "--set", "relax.fixed=[1]")
    refuse(slurm, is_refusing=True)
    done = cluster.run(*other)
    assert (done.returncode, "replaces the path" in done.stderr) == (5, False), done.stderr
    refuse(slurm, is_refusing=False)
    assert f"would replace the path to {second}, which" in cluster.run(*other, "-n").stderr
    run = finish(RunDir(shell.runs / second))
    act_in(cluster, monkeypatch)
    end = EndOfJob(SlurmJob("8", "8", 0), 1.0, Inbox())
    sequel = sequel_of(shell.runs, 8)
    third = go_on(path_of(run), shell.runs).last.run_id
    run.beside(third).path.mkdir()
    (run.beside(third).path / "run.json").write_text("{")
    run_sequel(run, sequel, end)
    note = note_of(cluster, second)
    assert f"{third}/run.json: damaged" in note, note
    shutil.rmtree(run.beside(third).path)
    assert f"replaces the path to {third}, which begins" in cluster.run(*other).stderr
    run_sequel(run, sequel, end)
    assert not run.beside(third).exists
    note = note_of(cluster, second)
    assert "its path was replaced by the path to" in note, note
    assert "vmcjob resume" not in note
    assert submitted(cluster, "submit", "h2.toml") == [third]
    assert note_of(cluster, second) == ""


def test_the_job_of_a_geometry_submits_the_job_of_the_next_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the same flags; also if a process died between the geometry and its job.

    A host without sbatch must not work on the next run itself. `status` tells of a refusal until
    the path goes on. SIGTERM at the end of a job must not cut sbatch short.
    """
    (shell.cwd / "bin").mkdir()
    slurm = slurm_programs.install(shell.cwd / "bin")
    cluster = replace(shell, extra={"PATH": str(shell.cwd / "bin")})
    (shell.cwd / "h2.toml").write_text(CLI_SPEC)
    (first,) = submitted(cluster, "submit", "h2.toml", "--time=00:10:00", "--extra=hold")
    sequel = sequel_of(shell.runs, 7)
    run = finish(RunDir(shell.runs / first))
    path = go_on(path_below(shell.runs), shell.runs)
    assert len(path.run_ids) == 2
    done = shell.run("resume", first)
    assert done.returncode == 5
    assert f"{first}: was a job of a cluster, and this host cannot submit jobs" in done.stderr
    act_in(cluster, monkeypatch)
    end = EndOfJob(SlurmJob("7", "7", 0), 1.0, Inbox())
    refuse(slurm, is_refusing=True)
    run_sequel(run, sequel, end)
    assert "Batch job submission failed: no; vmcjob resume" in note_of(cluster, first)
    refuse(slurm, is_refusing=False)
    sbatch = shell.cwd / "bin" / "sbatch"
    program = sbatch.read_text().removeprefix("#!/bin/sh\n")
    sbatch.write_text(f"#!/bin/sh\nkill -TERM $PPID $$\n{program}")
    for _ in range(2):  # SLURM may start a job again
        run_sequel(run, sequel, end)
    assert note_of(cluster, first) == ""
    assert path_below(shell.runs) == path
    assert submitted(cluster, "submit", "h2.toml", "--time=00:10:00", "--extra=hold") == []
    with slurm_programs.opened(slurm) as state:
        assert list(state["jobs"]) == ["7", "8"], run.log_path.read_text()
    script = next(shell.runs.glob(".slurm/*/8_submission.sh")).read_text()
    assert "#SBATCH --time=10\n" in script
    assert "#SBATCH --hold\n" in script


def test_a_path_that_ends_too_early_is_told(relaxing: Shell) -> None:
    """With exit code 3, and with more steps it goes on."""
    (first,) = submitted(relaxing, "submit", "h2.toml", "--set", "relax.max_steps=1")
    finish(RunDir(relaxing.runs / first))
    done = relaxing.run("submit", "h2.toml", "--set", "relax.max_steps=1")
    assert done.returncode == 3
    assert "is left after 1 geometry; raise relax.max_steps" in done.stderr
    assert len(submitted(relaxing, "submit", "h2.toml")) == 1


def has_reached(root: Path, place: int, phase: Activity) -> bool:
    """Whether the run at a geometry of the only path is in a phase or beyond."""
    runs = list_runs(root)
    beat = runs[place].read_heartbeat() if len(runs) > place else None
    return beat is not None and beat.phase in PHASES[PHASES.index(phase) :]


def path_below(root: Path) -> Relaxation:
    ((path,), _) = find_relaxations(root, [run.path.name for run in list_runs(root)])
    return path


def path_of(run: RunDir) -> Relaxation:
    ((path, _),) = known_paths([run])
    return path


@pytest.mark.slow
@pytest.mark.full_matrix  # of runs finished by hand, test_path.py asks as much
@pytest.mark.timeout(1200)
def test_a_path_that_is_killed_three_times_is_the_same_to_the_bit(shell: Shell) -> None:
    """With real workers, killed in training and evaluation, each with its launcher and driver."""
    (shell.cwd / "real.toml").write_text(REAL)
    whole, killed = shell.cwd / "whole", shell.cwd / "killed"
    places = [(0, Activity.TRAIN), (0, Activity.EVALUATE), (1, Activity.TRAIN)]
    try:
        for place, phase in places:
            process = shell.start("submit", "-f", "--runs", str(killed), "real.toml")
            try:
                wait_until(lambda at=place: len(list_runs(killed)) > at, f"a run at {place}")
                wait_until(
                    lambda at=place, of=phase: has_reached(killed, at, of), f"{phase} at {place}"
                )
            finally:
                process.kill()
                end_everything(killed)
                process.communicate()
        for root in (killed, whole):
            with shell.start("submit", "-f", "--runs", str(root), "real.toml") as process:
                stdout, stderr = process.communicate(timeout=500)
            assert process.returncode == 3, stderr  # two geometries are too few
            assert "not relaxed" in stdout
    finally:
        for root in (killed, whole):
            end_everything(root)
    assert path_below(killed).geometries == path_below(whole).geometries
    assert len(path_below(whole).geometries) == 2
