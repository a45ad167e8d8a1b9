"""doctor, in this process, on a machine whose programs are three lines each."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vmcjob import __version__
from vmcjob.cli.app import app
from vmcjob.cli.checks import FAILURE, OK, WARNING


class Machine:
    """A PATH of our own, and a site profile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()

    def add(self, name: str, answer: str = "", code: int = 0) -> None:
        """A program that prints an answer."""
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n/bin/cat <<'E'\n{answer}\nE\nexit {code}\n")
        program.chmod(0o755)

    def doctor(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["doctor", *options])

    def levels(self, *options: str) -> dict[str, str]:
        """The level of each check."""
        found = json.loads(self.doctor("--json", *options).stdout)["checks"]
        return {check["name"]: check["level"] for check in found}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    for name, value in (("PATH", f"{tmp_path}/bin"), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    for name in ("VMCJOB_SITE", "SLURM_GPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path)


def test_a_laptop_without_slurm_and_images_is_fine(machine: Machine) -> None:
    """Nothing that such a machine does not need is called a failure."""
    levels = machine.levels()
    assert FAILURE not in levels.values()
    assert levels["slurm"] == levels["apptainer"] == levels["runs root"] == OK
    done = machine.doctor()
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].split()[:3] == ["check", "result", "found"]
    assert not list(machine.folder.glob("**/.vmcjob-doctor-*"))


def test_what_is_missing_for_a_site_fails_with_the_next_command(machine: Machine) -> None:
    (machine.folder / "s.toml").write_text(
        'scheduler = "slurm"\nruns = "/proc/1/runs"\n[container]\nimage = "no.sif"\n'
    )
    done = machine.doctor("--site", "s.toml", "--json")
    assert done.exit_code == 1
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    failed = {name for name, check in found.items() if check["level"] == FAILURE}
    assert failed == {"slurm", "apptainer", "image", "runs root"}
    assert all(found[name]["command"] for name in failed)
    assert "no.sif: cannot be read: No such file" in found["image"]["found"]


def test_a_cluster_that_does_not_answer_and_one_without_accounts_are_told_apart(
    machine: Machine,
) -> None:
    machine.add("sbatch")
    machine.add("sinfo", "slurm 23.11", 1)
    assert machine.levels()["slurm"] == FAILURE
    machine.add("sinfo", "gpu*")
    machine.add("sacctmgr", "no", 1)
    levels = machine.levels()
    assert (levels["slurm"], levels["accounting"]) == (OK, WARNING)
    machine.add("sacctmgr", "cluster|host")
    assert machine.levels()["accounting"] == OK


def test_an_image_that_does_not_start_or_is_of_another_release_is_told(machine: Machine) -> None:
    """Both were found out after the queue, and the second as a key that nobody had typed."""
    (machine.folder / "s.toml").write_text('[container]\nimage = "i.sif"\n')
    (machine.folder / "i.sif").write_text("an image")
    for answer, code, level in (
        (f"vmcjob {__version__}", 0, OK),
        ("vmcjob 0.0.1", 0, WARNING),
        ("FATAL: no namespaces", 1, FAILURE),
    ):
        machine.add("apptainer", answer, code)
        assert machine.levels("--site", "s.toml")["container"] == level
    done = machine.doctor("--site", "s.toml")
    assert "1 failure" in done.stderr.splitlines()[-1]
    assert "FATAL: no namespaces" in done.stdout


NAMES = "", "i.sif", f"{300 * 'i'}.sif"  # no image, none yet, and none that there could be


@pytest.mark.parametrize(
    "text", [f'[container]\nimage = "{name}"\n' * bool(name) for name in NAMES]
)
def test_a_container_is_tried_before_there_is_an_image(machine: Machine, text: str) -> None:
    """A root without all capabilities starts containers by one option alone; none is to guess."""
    (machine.folder / "s.toml").write_text(text)
    machine.add("apptainer", "1.4.5")
    assert machine.levels("--site", "s.toml")["container"] == OK
    only = '#!/bin/sh\ncase "$*" in --version|*--userns*) ;; *) echo ERROR >&2; exit 1;; esac\n'
    (machine.folder / "bin" / "apptainer").write_text(only)
    checks = json.loads(machine.doctor("--json", "--site", "s.toml").stdout)["checks"]
    (found,) = (check for check in checks if check["name"] == "container")
    assert found["level"] == WARNING
    assert found["found"].startswith("does not start: ERROR; with --userns a container starts here")
    assert 'write options = ["--userns"] into [container] of the site profile' in found["found"]


def test_the_next_command_is_that_of_the_tutorial(machine: Machine, monkeypatch) -> None:
    """A new user went on to a spec, and had neither an image nor a look at a node."""
    monkeypatch.setattr("vmcjob.cli.hints.is_terminal", lambda stream: True)

    def hints(*options: str) -> list[str]:
        lines = machine.doctor(*options).stderr.splitlines()
        return [line.removeprefix("  vmcjob ") for line in lines if line.startswith("  vmcjob ")]

    (machine.folder / "s.toml").write_text('[container]\nimage = "i.sif"\n')
    (machine.folder / "i.sif").write_text("an image")
    assert hints() == ["init --molecule H2O"]
    for name, answer in (("sbatch", ""), ("sinfo", "gpu*|1|1|1|gpu:1|1"), ("sacctmgr", "host")):
        machine.add(name, answer)
    assert hints() == ["doctor --on-node", "init --molecule H2O"]
    machine.add("apptainer", f"vmcjob {__version__}")
    image = "image build --gpu ~/vmcjob.sif"
    assert hints() == [image, "doctor --on-node", "init --molecule H2O"]
    assert hints("--site", "s.toml") == ["doctor --on-node --site s.toml", "init --molecule H2O"]
    machine.add("sinfo", "no answer", 1)
    assert hints() == []  # first what has failed


def test_a_gpu_that_jax_does_not_see_is_a_failure(machine: Machine, monkeypatch) -> None:
    """Runs would go on the CPU, a hundred times as slow, without a word."""
    machine.add("nvidia-smi", "GPU 0: NVIDIA H100 (UUID: GPU-1)")
    machine.add("python")
    monkeypatch.setattr("sys.executable", str(machine.folder / "bin" / "python"))
    assert machine.levels()["jax"] == FAILURE
    machine.add("python", "NVIDIA H100")
    assert machine.levels()["jax"] == OK


def test_a_job_whose_gpu_has_no_driver_is_warned(machine: Machine, monkeypatch) -> None:
    """Without CUDA's JAX, its runs would compute on the CPU."""
    assert machine.levels()["gpu"] == OK
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "1")
    assert machine.levels()["gpu"] == WARNING


def test_a_node_is_checked_in_a_job_of_the_site(machine: Machine) -> None:
    """The partition, the account and the profile must reach srun, and its exit code us.

    A job that asks for no GPU finds none on a node that has some.
    """
    (machine.folder / "s.toml").write_text('[slurm]\npartition = "gpu"\naccount = "chem"\n')
    assert machine.doctor("--on-node").exit_code == 5
    machine.add("sinfo", "cpu*|1:00:00|64000|32|(null)|10\ngpu|4:00:00|512000|64|gpu:a100:4(S:0)|2")
    srun = machine.folder / "bin" / "srun"
    srun.write_text('#!/bin/sh\necho "$@" > said\nexit 1\n')
    srun.chmod(0o755)
    assert machine.doctor("--on-node", "--site", "s.toml").exit_code == 1
    said = (machine.folder / "said").read_text()
    assert "--partition=gpu --account=chem" in said
    assert " --gpus-per-node=1 " in said
    assert said.endswith(f"-m vmcjob doctor --site {machine.folder}/s.toml\n")
    machine.doctor("--on-node")  # in the default partition, which has no GPU
    assert "gpu" not in (machine.folder / "said").read_text()


QUOTAS = """Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
          /home 9500000* 9000000 10000000   6days   1200       0       0
       /scratch  100000       0       0          995000 1000000 1100000
/a/very/long/name/of/a/project 1000 2000000 2000000     10       0       0
           /tmp       8       0       0               1       0       0
"""


def test_a_quota_that_is_nearly_used_up_is_a_warning(machine: Machine) -> None:
    """Space above its soft limit, and files near theirs; others are not shown.

    The program tells a mount point alone only with both options; else a device stands before it.
    """
    assert "quota" not in machine.levels()
    machine.add("quota", QUOTAS)
    program = machine.folder / "bin" / "quota"
    needed = "case $* in *--show-mntpoint*--hide-device*) ;; *) exit 1;; esac"
    program.write_text(program.read_text().replace("\n", f"\n{needed}\n", 1))
    checks = json.loads(machine.doctor("--json").stdout)["checks"]
    found = [(c["level"], c["found"]) for c in checks if c["name"] == "quota"]
    assert found == [
        (WARNING, "/home: 9.73 GB of 9.22 GB"),
        (WARNING, "/scratch: 995000 of 1000000 files"),
        (OK, "/a/very/long/name/of/a/project: 1.02 MB of 2.05 GB"),
    ]
