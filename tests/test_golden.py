"""Runs of an earlier release stay good: what commit ddd29ed left behind, in the hands of today's.

`golden/ddd29ed.tar.xz` is a runs root that its `submit`, `cancel` and supervisor made, in double
precision: helium from Hartree-Fock by SPRING, one seed finished and one cancelled in training; H₂
cancelled in training by K-FAC (a Psiformer) and by Adam, and in evaluation by SR (Slater-Jastrow);
hydrogen by LAMB on SLURM, one seed finished and one cancelled in the queue.
`golden/ddd29ed.json` has the energies to which ddd29ed itself took copies of them.
"""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shell import Shell
from tests.runs import end_everything
from vmcjob.rundir import RunDir
from vmcjob.store import RunStore

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "ddd29ed.json").read_text("utf-8"))
FINISHED = "spring-fa4b052da7"
CANCELLED = "spring-67b8033a2c"
ON_SLURM = "slurm-4b61a33cec"
NOT_BEGUN = "slurm-8f26b384d2"
"""It was cancelled in the queue. So it begins as a new run, with the first parameters of today."""
STATES = {
    FINISHED: ("FINISHED", 20, 20),
    CANCELLED: ("CANCELLED", 8, 100),
    "kfac-f887501e79": ("CANCELLED", 8, 100),
    "sr-dd6030f000": ("CANCELLED", 8, 100),
    "adam-048fff1080": ("CANCELLED", 8, 100),
    ON_SLURM: ("FINISHED", 20, 20),
    NOT_BEGUN: ("CANCELLED", None, None),
}
# Another processor, or another XLA, rounds otherwise: by 3e-14 where it was tried.
TOLERANCE = 1e-9


def unpack(folder: Path) -> Shell:
    """A shell in a directory with the runs root of ddd29ed."""
    with tarfile.open(GOLDEN / "ddd29ed.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return Shell(folder)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """The same in a directory of its own; nothing of it is at work afterwards."""
    shell = unpack(tmp_path)
    yield shell
    end_everything(shell.runs)


def assert_energies(run: RunDir, expected: dict[str, list[float]]) -> None:
    """Every step's energy, in training and evaluation."""
    store = RunStore.open(run.store_path)
    for phase in ("train", "evaluate"):
        found = store.series(phase)["energy"]
        np.testing.assert_allclose(found, expected[phase], TOLERANCE, TOLERANCE, err_msg=phase)


def test_status_knows_every_run(shell: Shell) -> None:
    """State, step and energy, also of runs whose cluster is out of reach."""
    rows = json.loads(shell.run("status", "--json").stdout)["runs"]
    found = {row["run_id"]: (row["state"], row["step"], row["n_steps"]) for row in rows}
    assert found == STATES
    energies = {row["run_id"]: row["energy"] for row in rows}
    assert energies[FINISHED] == pytest.approx(-2.5388780228521073)
    jobs = {row["run_id"]: row["job_id"] for row in rows}
    assert (jobs[ON_SLURM], jobs[CANCELLED]) == ("2_0", "local-15905")


@pytest.mark.parametrize("run_id", STATES)
def test_show_knows_what_each_run_was(shell: Shell, run_id: str) -> None:
    """Who made it, for which numbers, and how it went; and it is found by its name."""
    done = shell.run("show", run_id)
    assert done.returncode == 0, done.stderr
    assert f"run        {run_id}\nstate      {STATES[run_id][0].lower()}" in done.stdout
    assert ", by vmcjob 0.1.0\n" in done.stdout
    assert f'# spec.toml\nname = "{run_id.partition("-")[0]}"\n' in done.stdout
    has_results = run_id != "slurm-8f26b384d2"
    assert ("versions.vmcjob    0.1.0\n" in done.stdout) == has_results
    assert ("#SBATCH " in done.stdout) == run_id.startswith("slurm")


def test_aggregate_takes_the_finished_runs(shell: Shell) -> None:
    """Their energies, and what the start by Hartree-Fock was; the others are named."""
    table = json.loads(shell.run("aggregate", "--json").stdout)
    rows = {row["name"]: row for row in table["rows"]}
    assert {name: (row["run_ids"], row["n_steps"]) for name, row in rows.items()} == {
        "spring": ([FINISHED], 20),
        "slurm": ([ON_SLURM], 20),
    }
    assert rows["spring"]["energy"] == pytest.approx(-2.5388780228521073, rel=1e-14)
    assert rows["spring"]["variance"] == pytest.approx(0.40353818618936765, rel=1e-14)
    assert rows["spring"]["hartree_fock"] == pytest.approx(-2.807783957539974, rel=1e-14)
    assert rows["slurm"]["energy"] == pytest.approx(0.2440311129446579, rel=1e-14)
    left_out = {run_id for run_id, (state, *_) in STATES.items() if state != "FINISHED"}
    assert {item["run_id"] for item in table["excluded"]} == left_out


def test_its_logs_can_be_read(shell: Shell) -> None:
    """A worker's own, and that of a job on SLURM."""
    assert "FINISHED" in shell.run("logs", FINISHED).stdout
    assert "PREEMPTED stopped by SIGTERM" in shell.run("logs", CANCELLED).stdout
    assert "submitit" in shell.run("logs", "--err", ON_SLURM).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "run_id",
    [
        CANCELLED,
        *(
            pytest.param(run_id, marks=pytest.mark.full_matrix)
            for run_id in EXPECTED["resumed"]
            if run_id not in (CANCELLED, NOT_BEGUN)
        ),
    ],
)
def test_what_was_cancelled_goes_on_to_the_numbers_of_its_own_release(
    shell: Shell, run_id: str
) -> None:
    """Catches a change of the checkpoint, the random numbers, a default or a formula."""
    done = shell.run("resume", "--follow", run_id)
    assert done.returncode == 0, done.stderr
    assert_energies(RunDir(shell.runs / run_id), EXPECTED["resumed"][run_id])


@pytest.mark.slow
def test_what_was_finished_goes_on_for_longer(shell: Shell) -> None:
    """In a run of its own, under the id that ddd29ed gave it, from a copy of what there is."""
    longer = EXPECTED["longer"]
    done = shell.run("resume", "--more-steps", "10", "--follow", FINISHED)
    assert done.returncode == 0, done.stderr
    run = RunDir(shell.runs / longer["run_id"])
    assert_energies(run, longer)
    assert RunStore.open(run.store_path).hartree_fock() is not None
    table = json.loads(shell.run("aggregate", "--json", "spring").stdout)
    assert [row["run_ids"] for row in table["rows"]] == [[longer["run_id"]]]


def test_submitting_the_same_spec_again_finds_the_same_runs(shell: Shell) -> None:
    """No second run for the same numbers: the ids of ddd29ed are those of today."""
    with tarfile.open(GOLDEN / "ddd29ed.tar.xz") as archive:
        member = archive.extractfile(f"runs/{FINISHED}/spec.toml")
        assert member is not None
        text = member.read().decode()
    (shell.cwd / "spring.toml").write_text(text.replace("seed = 0", "seeds = [0, 1]"))
    document = json.loads(shell.run("submit", "--dry-run", "--json", "spring.toml").stdout)
    assert [item["run_id"] for item in document["skipped"]] == [FINISHED]
    assert [item["run_id"] for item in document["submitted"]] == [CANCELLED]
