"""show, as users type it."""

import json
import time

from tests.cli.shell import Shell, finish
from tests.runs import make_run
from vmcjob.rundir import RunDir, Submission

SCRIPT = "#!/bin/bash\n#SBATCH --time=10\n"
ROOT = {"attributes": {"provenance": {"versions": {"jax": "0.10.2"}, "image_sha256": None}}}


def make_finished_job(shell: Shell) -> RunDir:
    """A run that went through SLURM, in a container, and was killed once."""
    run = make_run(shell.runs, "h2-0000000000")
    run.write_submission(
        Submission(
            scheduler="slurm",
            job_id="22_3",
            job_name="h2-ab",
            array_index=3,
            worker_pid=123,
            started_at=time.time(),
        )
    )
    folder = shell.runs / ".slurm" / "h2-ab"
    folder.mkdir(parents=True)
    (folder / "22_submission.sh").write_text(SCRIPT)
    run.append_attempt("start")
    run.append_attempt("lost", worker_pid=123, how="SIGKILL")
    run.append_attempt("lost", rank=1, worker_pid=124, how="SIGTERM")
    run.append_attempt("end", outcome="FINISHED", message="")
    run.write_environment("SLURM_JOB_ID=22\nXLA_FLAGS='--a=1 --b=$HOME'\n")
    finish(run)
    (run.store_path / "zarr.json").write_text(json.dumps(ROOT))
    return run


def test_show_tells_all_that_the_directory_knows(shell):
    run = make_finished_job(shell)
    done = shell.run("show", "h2")
    assert done.returncode == 0, done.stderr
    for words in (
        "run        h2-0000000000\nstate      finished\n",
        "energy     -1.174476(12) hartree\n",
        "point      R=1.4\n",
        "versions.jax  0.10.2\n",
        "123  SIGKILL\n",
        "124  rank 1: SIGTERM\n",
        '# spec.toml\nname = "h2"\n',
        f"# script of its job: {run.path.parent}/.slurm/h2-ab/22_submission.sh\n{SCRIPT}",
        "# container.env\nSLURM_JOB_ID=22\n",
    ):
        assert words.replace(f"{shell.cwd}/", "") in done.stdout


def test_show_json_has_the_promised_shape(shell):
    make_finished_job(shell)
    document = json.loads(shell.run("show", "--json", "h2").stdout)
    assert (document["schema_version"], document["state"]) == (1, "FINISHED")
    assert document["spec"] == {"name": "h2"}
    assert document["provenance"] == ROOT["attributes"]["provenance"]
    assert document["environment"] == {"SLURM_JOB_ID": "22", "XLA_FLAGS": "--a=1 --b=$HOME"}
    assert document["script"] == SCRIPT
    events = [attempt["event"] for attempt in document["attempts"]]
    assert events == ["start", "lost", "lost", "end"]
    assert document["outcome"]["outcome"] == "FINISHED"
    assert document["submission"]["job_id"] == "22_3"


def test_a_run_that_nobody_has_started_shows_its_spec(shell):
    make_run(shell.runs, "h2-0000000000")
    done = shell.run("show", "h2")
    assert done.returncode == 0
    assert "state      new\n" in done.stdout
    assert done.stdout.count("# ") == 1
    document = json.loads(shell.run("show", "--json", "h2").stdout)
    absent = ("outcome", "submission", "provenance", "script", "environment")
    assert [document[key] for key in absent] == [None] * len(absent)


def test_a_spec_that_cannot_be_read_is_an_error_after_the_rest_was_shown(shell):
    run = make_run(shell.runs, "h2-0000000000")
    run.spec_path.write_text("name =")
    done = shell.run("show", "--json", "h2")
    assert done.returncode == 2
    assert json.loads(done.stdout)["spec"] is None
    assert "spec.toml:1:" in done.stderr
    run.spec_path.unlink()
    done = shell.run("show", "h2")
    assert done.returncode == 1
    assert done.stdout.startswith("run ")
    assert "spec.toml: cannot be read: No such file" in done.stderr
