"""show, as users type it."""

import json
import time
from dataclasses import replace

from tests.cli.shell import Shell, busy_slot, finish
from tests.cli.test_plot import make_finished as make_finished_run
from tests.runs import make_run
from vmcjob.cli.spent import Asked, left_words
from vmcjob.rundir import Activity, Heartbeat, RunDir, Submission
from vmcjob.spec import dump_spec, parse_spec

BEAT = Heartbeat(phase=Activity.TRAIN, step=1, n_steps=2)
SPEC = """
name = "h2"
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]
[resources]
gpus = 2
time = "04:00:00"
"""
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


def test_show_tells_the_device_hours_of_all_attempts(shell):
    """Two GPUs for an hour and a half hour, and what the last attempt was seen to do, are 4."""
    run = make_run(shell.runs, "h2-0000000000")
    (point,) = parse_spec(SPEC, "h2.toml").points
    run.write_spec_text(dump_spec(point.spec))
    assert "device hours" not in shell.run("show", "h2").stdout  # of a run that nobody started
    for event, hours in (("start", 0.0), ("end", 1.0), ("start", 5.0), ("end", 5.5)):
        run.append_attempt(event, time=1e9 + 3600 * hours)
    run.append_attempt("start", time=1e9 + 3600 * 7.0, host="n1", pid=7)
    run.write_heartbeat(replace(BEAT, host="n1", pid=7, time=1e9 + 3600 * 7.5))
    words = "used       4 device hours in 3 attempts; an attempt may take 8\n"
    assert words in shell.run("show", "h2").stdout
    document = json.loads(shell.run("show", "--json", "h2").stdout)
    assert document["usage"] == {
        "devices": 2.0,
        "attempts": 3,
        "used_hours": 4.0,
        "is_complete": True,
        "forecast_hours": None,
        "asked_hours": 8.0,
    }


def test_two_runs_are_compared_key_by_key(shell):
    """Which keys differ: the flag reaches the run, and keys that are equal are not shown."""
    first, second = (make_run(shell.runs, name) for name in ("h-0123456789", "h-9876543210"))
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\nsampler.walkers = {}\n'
    for run, walkers in ((first, 64), (second, 128)):
        run.write_spec_text(dump_spec(parse_spec(text.format(walkers), "h.toml").points[0].spec))
    done = shell.run("show", "h-01", "--against", "h-98")
    assert (done.returncode, done.stderr) == (0, "")
    _, line = done.stdout.splitlines()
    assert line.split() == ["sampler.walkers", "64", "128"]
    done = shell.run("show", "h-01", "--against", "h-98", "--json")
    assert json.loads(done.stdout)["differing"] == {"sampler.walkers": ["64", "128"]}
    assert "equal specs" in shell.run("show", "h-01", "--against", "h-01").stderr


def test_runs_of_a_sweep_are_named_by_their_rows(shell):
    """Ten ids, of which nobody knows the distance, are no help to name one of them."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0], ["H", 0, 0, {}]]\n'
    for number, distance in enumerate((1.4, 1.6, 1.8, 2.0)):
        run = make_run(shell.runs, f"h-000000000{number}", point={"R": distance})
        spec = parse_spec(text.format(distance), "h.toml").points[0].spec
        run.write_spec_text(dump_spec(spec))
    done = shell.run("show", "h", "--against", "h R=1.4")
    words = "'h' names 4 runs ('h R=1.4', 'h R=1.6', 'h R=1.8', ...); give the row of one\n"
    assert (done.returncode, done.stderr) == (2, words)
    done = shell.run("show", "h R=1.4", "--against", "h R=1.6")
    heading, line = done.stdout.splitlines()
    assert heading.split() == ["key", "h", "R=1.4", "h", "R=1.6"]
    assert line.split()[0] == "system.atoms"


def test_each_value_is_shown_with_its_line_its_flag_or_as_a_default(shell):
    """The origins reach the run through a submission, and a new start of the run keeps them."""
    with busy_slot(shell.runs):
        flags = ("--set", "sampler.walkers=64", "--seeds", "1")
        done = shell.run("submit", "h.toml", *flags)
        assert done.returncode == 0, done.stderr
        shell.run("cancel", "h")
        assert shell.run("rerun", "h").returncode == 0  # with a new directory
        shown = shell.run("show", "h").stdout
    for line in (
        'name = "h"                        # h.toml:2',
        "seed = 0                          # --seeds 1",
        'atoms = [["H", 0.0, 0.0, 0.0]]    # h.toml:5',
        "walkers = 64                      # --set sampler.walkers=64",
        "steps = 10                        # default",
        "[sampler]",
    ):
        assert f"\n{line}\n" in shown, shown
    origins = json.loads(shell.run("show", "--json", "h").stdout)["origins"]
    assert (origins["seed"], origins["sampler.steps"]) == ("--seeds 1", "default")


def test_the_options_of_a_job_are_shown_with_who_gave_them(shell):
    """A flag, a key of the spec with its line, and the file of the profile."""
    run = make_finished_job(shell)
    options = {"partition": "--partition gpu", "time": "resources.time", "account": "/s.toml"}
    submission = run.read_submission()
    assert submission is not None
    run.write_submission(replace(submission, asked_by=options))
    run.write_origins({"resources.time": "h2.toml:7"})
    section = (
        "# who gave the options of its job\npartition  --partition gpu\n"
        "time       resources.time, h2.toml:7\naccount    /s.toml\n"
    )
    assert section in shell.run("show", "h2").stdout


def test_energies_are_drawn_in_a_line_of_text(shell):
    """Each series has its curve; what --json cannot have is refused, and not ignored."""
    make_finished_run(shell.runs, "h2-1a2b3c4d5e", -1.174476, '[["H", 0.0, 0.0, 0.0]]', point={})
    shown = shell.run("show", "h2", "--energy").stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("evaluation")]
    assert "▁" in line
    assert "hartree in " in line
    assert "evaluation  " not in shell.run("show", "h2").stdout
    done = shell.run("show", "h2", "--energy", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_energies_that_are_not_there_do_not_go_unsaid(shell):
    """A run without results looked as if the flag were ignored; a damaged store hid all else."""
    run = make_run(shell.runs, "h2-0000000000")
    done = shell.run("show", "h2", "--energy")
    assert "energies   none: the run has no results yet\n" in done.stdout
    finish(run)
    (run.store_path / "zarr.json").write_text("{")
    done = shell.run("show", "h2", "--energy")
    assert (done.returncode, done.stdout.startswith("run ")) == (1, True)
    assert str(run.store_path.name) in done.stderr


def test_time_left_stands_beside_the_wall_time_that_is_left():
    """A job that ends before the run goes on in another attempt, and that is not hidden."""
    begun = time.time() - 3600
    words = left_words(Asked(limit_s=7200.0), 9000.0, begun)
    assert words.startswith("about 2 h 30 min; its job has ")
    assert words.endswith(" of wall time left; it goes on in another attempt")
    assert "another" not in left_words(Asked(limit_s=7200.0), 60.0, begun)
    assert left_words(Asked(), 60.0, None) == "about 1 min"
    assert left_words(Asked(limit_s=7200.0), None, begun) == ""
