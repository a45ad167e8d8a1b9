"""validate and submit, as users type them."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shell import Shell, busy_slot, finish
from tests.runs import make_run, wait_until
from vmcjob.rundir import Outcome, OutcomeRecord, list_runs
from vmcjob.runs.status import State, examine
from vmcjob.spec import dump_spec, format_bytes, parse_spec


def test_complaints_about_all_specs_come_together(shell):
    for name in ("a.toml", "b.toml"):
        (shell.cwd / name).write_text('name = "h"\nsystm = 1\n')
    done = shell.run("validate", "a.toml", "h.toml", "b.toml")
    assert done.returncode == 2
    assert "a.toml:2:1: " in done.stderr
    done = shell.run("validate", "absent.toml", "b.toml")
    assert done.returncode == 4
    assert "absent.toml: no such file\nb.toml:1:1: " in done.stderr
    assert "b.toml:2:1: " in done.stderr


def test_a_start_from_another_wave_function_is_refused_before_anything_is_written(shell):
    """Else a job would wait in the queue to be told so, and JAX would be started for it."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'
    origin = finish(make_run(shell.runs, "h-0123456789"))
    origin.write_spec_text(dump_spec(parse_spec(text, "h.toml").points[0].spec))
    text += f'[train]\nstart_from = "{origin.path.name}"\n[ansatz]\nkind = "psiformer"\n'
    (shell.cwd / "next.toml").write_text(text)
    for options in ((), ("--dry-run",)):
        done = shell.run("submit", "next.toml", *options)
        assert done.returncode == 2
        assert done.stderr == (
            f"next.toml: train.start_from: runs/{origin.path.name} has ansatz.kind = "
            '"ferminet"; expected "psiformer": start from another run, or without one\n'
        )
        assert [run.path.name for run in list_runs(shell.runs)] == [origin.path.name]


def test_a_start_that_is_not_there_is_not_found(shell):
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n[train]\nstart_from = "h-0123456789"\n'
    (shell.cwd / "next.toml").write_text(text)
    for options in ((), ("--dry-run",)):
        done = shell.run("submit", "next.toml", *options)
        assert done.returncode == 4
        assert done.stderr == "next.toml: train.start_from: runs/h-0123456789 is not there\n"
        assert not shell.runs.exists()


def test_a_valid_spec_is_called_valid(shell):
    done = shell.run("validate", "h.toml")
    title, line, system = done.stdout.splitlines()
    assert system == ("h.toml: H, charge 0, multiplicity 2 (doublet), electrons: 1 up, 0 down")
    assert title.split() == ["spec", "verdict", "plan", "parameters", "memory", "store"]
    assert line.split() == [
        *("h.toml", "valid", "2", "runs", "2934", "6.75", "MiB", "376", "KiB"),
    ]
    assert done.stderr == ""


def test_a_doubtful_system_is_warned_of_and_computed_all_the_same(shell):
    """Before a job waits for days in a queue, and in a dry run."""
    (shell.cwd / "n.toml").write_text('name = "n"\nsystem.atoms = [["N", 0, 0, 0]]\n')
    for command in (("validate",), ("submit", "-n")):
        done = shell.run(*command, "n.toml")
        assert done.returncode == 0
        assert "n.toml: warning: N is a doublet here, and its ground state" in done.stderr


def test_a_job_that_this_machine_cannot_hold_is_valid_elsewhere_and_not_started_here(shell):
    """A login node has little memory; a laptop would be swapping for hours before it fails."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\nsampler.walkers = 350_000\n'
    (shell.cwd / "large.toml").write_text(text)
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sentence = (
        f"large.toml: needs at least 460 GiB of memory; this machine has {format_bytes(has)}\n"
    )
    done = shell.run("validate", "large.toml")
    assert (done.returncode, done.stderr) == (0, sentence)
    for options in ((), ("-n",)):
        done = shell.run("submit", *options, "large.toml")
        assert done.returncode == 2
        assert done.stderr.endswith(sentence)
        assert not shell.runs.exists()


def test_submitting_prints_ids_and_directories_and_what_to_type_next(shell):
    with busy_slot(shell.runs):
        done = shell.run("submit", "h.toml")
        ids = [run.path.name for run in list_runs(shell.runs)]
        assert done.returncode == 0
        for run_id, line in zip(ids, done.stdout.splitlines()[1:], strict=True):
            assert line.split()[::2] == [run_id, "submitted"]
            assert line.endswith(f"runs/{run_id}")
        assert "local scheduler: on this machine, 1 run at a time" in done.stderr
        assert f"vmcjob logs -f {ids[0]}" in done.stderr
        again = shell.run("submit", "h.toml")
        assert again.returncode == 0
        assert again.stdout.count("skipped: queued") == 2


def test_what_to_type_next_looks_where_the_runs_are(shell):
    """Copied and pasted, the hint must work."""
    root = shell.cwd / "on scratch"
    with busy_slot(root):
        done = shell.run("submit", "--runs", "on scratch", "h.toml")
        first = list_runs(root)[0].path.name
    assert f"vmcjob logs -f --runs 'on scratch' {first}" in done.stderr


def test_following_with_json_prints_nothing_but_json(shell):
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
    for run in list_runs(shell.runs):
        finish(run)
    done = shell.run("submit", "--json", "--follow", "h.toml")
    assert len(json.loads(done.stdout)["skipped"]) == 2
    assert done.stderr.count("-1.174476(12)") == 4  # followed, then in the table


def test_submit_json_has_the_promised_shape(shell):
    with busy_slot(shell.runs):
        first = json.loads(shell.run("submit", "--json", "h.toml").stdout)
        second = json.loads(shell.run("submit", "--json", "h.toml").stdout)
    assert (first["schema_version"], second["schema_version"]) == (1, 1)
    assert [set(item) for item in first["submitted"]] == [{"run_id", "job_id", "run_dir"}] * 2
    assert first["skipped"] == []
    assert second["submitted"] == []
    assert [set(item) for item in second["skipped"]] == [{"run_id", "reason", "run_dir"}] * 2
    for item in first["submitted"]:
        assert Path(item["run_dir"]) == shell.runs / item["run_id"]
        assert item["job_id"].startswith("local-")


def test_a_dry_run_prints_what_the_worker_would_read_and_writes_nothing(shell):
    done = shell.run("submit", "-n", "h.toml")
    assert done.returncode == 0
    assert not shell.runs.exists()
    shown = [part for part in done.stdout.split("# would be submitted: ") if part]
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
        runs = list_runs(shell.runs)
        places = [f"runs/{run.path.name}" for run in runs]
        heads = [places[0], f"{places[1]}, as the spec above but for seed = 1"]
        assert [part.splitlines()[0] for part in shown] == heads
        first, second = runs
        assert shown[0].partition("\n")[2].strip() == first.read_spec_text().strip()
        changed = second.read_spec_text().replace("seed = 1\n", "seed = 0\n")
        assert changed == first.read_spec_text(), "which the preview says in a line"
        again = shell.run("submit", "-n", "h.toml")
        lines, keys = again.stdout.splitlines(), runs[0].read_spec_text().splitlines()
        assert lines[:2] == [f"# would be skipped: runs/{run.path.name}, queued" for run in runs]
        assert [line for line in lines[2:] if line] == [key for key in keys if key]


def test_a_dry_run_of_many_runs_has_a_line_for_each(shell):
    """2000 runs in full were 158,052 lines. Another ansatz is another spec, and shown in full."""
    text = 'name = "h"\nseeds = {}\nsystem.atoms = [["H", 0, 0, 0]]\n'
    sweep = '[sweep]\n"optimizer.damping" = [1e-3, 1e-2]\n'
    (shell.cwd / "many.toml").write_text(text.format(list(range(200))) + sweep)
    (shell.cwd / "other.toml").write_text(text.format([0]) + '[ansatz]\nkind = "psiformer"\n')
    lines = shell.run("submit", "-n", "many.toml", "other.toml").stdout.splitlines()
    heads = [line for line in lines if line.startswith("# would be submitted: ")]
    assert len(heads) == 401
    assert sum(", as the spec above but for " in line for line in heads) == 399
    assert len(lines) < 401 + 2 * 120
    assert heads[399].endswith(" but for seed = 199, optimizer.damping = 0.01")


def test_what_a_laptop_leaves_aside_is_said(shell):
    """A container that is asked for and not used must not pass in silence."""
    assert "clusters only" not in shell.run("submit", "-n", "h.toml").stderr
    with (shell.cwd / "h.toml").open("a") as spec:
        spec.write('[resources]\ntime = "01:00:00"\n[container]\nimage = "vmc.sif"\n')
    said = shell.run("submit", "-n", "h.toml").stderr
    assert "[resources] and [container]: for clusters only" in said


def test_the_runs_root_comes_from_option_environment_or_profile(shell):
    (shell.cwd / "site.toml").write_text('runs = "from-profile"\n')
    profile = Shell(shell.cwd, {"VMCJOB_SITE": "site.toml"})
    environment = Shell(shell.cwd, {"VMCJOB_RUNS": "from-environment"})
    for where, command in [
        ("from-profile", profile.run("submit", "-n", "h.toml")),
        ("from-profile", shell.run("submit", "-n", "--site", "site.toml", "h.toml")),
        ("from-environment", environment.run("submit", "-n", "h.toml")),
        ("from-option", environment.run("submit", "-n", "--runs", "from-option", "h.toml")),
    ]:
        assert f"# would be submitted: {where}/h-" in command.stdout


def test_where_there_is_sbatch_it_is_asked_and_local_is_the_way_out(shell):
    """Its refusal comes in its own words, and nothing has been written by then."""
    sbatch = shell.cwd / "sbatch"
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: the queue is closed' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    (shell.cwd / "scontrol").symlink_to("/bin/true")
    done = shell.run("submit", "h.toml")
    assert done.returncode == 5
    assert "sbatch: the queue is closed" in done.stderr
    assert not shell.runs.exists()
    assert shell.run("submit", "--local", "-n", "h.toml").returncode == 0


def test_a_dry_run_for_slurm_needs_no_slurm(shell):
    """On a laptop: the script with what flags, spec and site say, in this order."""
    (shell.cwd / "site.toml").write_text(
        'scheduler = "slurm"\n[slurm]\naccount = "group"\npartition = "cpu"\ntime = "02:00:00"\n'
        'extra = ["exclusive", "reservation=my vmc"]\n'
    )
    with (shell.cwd / "h.toml").open("a") as spec:
        spec.write('[resources]\ngpus = 2\ntime = "01:00:00"\npartition = "gpu"\ncpus = 8\n')
    options = ("-t", "00:30:00", "--max-parallel", "1", "--extra", "nice=5")
    done = shell.run("submit", "-n", "--json", "--site", "site.toml", *options, "h.toml")
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    script = job["script"].splitlines()
    for option in (
        "account=group",
        "partition=gpu",
        "time=30",
        "gpus-per-node=2",
        "cpus-per-task=8",
        "exclusive",
        "reservation='my vmc'",
        "nice=5",
        "array=0-1%1",
        "signal=URG@30",
        "requeue",
    ):
        assert f"#SBATCH --{option}" in script
    assert "wckey" not in job["script"]
    assert len(job["run_ids"]) == 2
    assert (job["gpu_hours"], job["cpu_hours"], job["node_hours"]) == (2.0, 8.0, 1.0)
    assert not shell.runs.exists()


def test_a_dry_run_says_how_runs_share_a_gpu(shell):
    """Time slicing is what users get without a word, and MPS may be one line away."""
    site = shell.cwd / "site.toml"
    site.write_text('scheduler = "slurm"\n')
    with (shell.cwd / "h.toml").open("a") as spec:
        spec.write("[resources]\nruns_per_job = 2\n")
    dry = ("submit", "-n", "--site", "site.toml", "h.toml")
    assert "# several runs share a GPU by time slicing" in shell.run(*dry).stdout
    site.write_text('scheduler = "slurm"\n[slurm]\nmps = true\n')
    assert "at the same time, through MPS" in shell.run(*dry).stdout
    (job,) = json.loads(shell.run(*dry, "--json").stdout)["jobs"]
    assert job["gpu_sharing"] == "MPS"
    assert "nvidia-cuda-mps-control -d" in job["script"]


def test_a_run_on_several_nodes_has_a_task_on_each_and_ends_as_one(shell):
    """A rank that is left alone would wait for the others until the wall time ends.

    A site's WaitTime would end the first rank while it submits the next run of a path.
    """
    (shell.cwd / "site.toml").write_text('scheduler = "slurm"\n')
    options = ("submit", "-n", "--json", "--site", "site.toml", "h.toml")
    (job,) = json.loads(shell.run(*options).stdout)["jobs"]
    assert "kill-on-bad-exit" not in job["script"]
    with (shell.cwd / "h.toml").open("a") as spec:
        spec.write('[resources]\nnodes = 2\ngpus = 4\ntime = "01:00:00"\n')
    (job,) = json.loads(shell.run(*options).stdout)["jobs"]
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1"} <= set(job["script"].splitlines())
    (srun,) = (line for line in job["script"].splitlines() if line.startswith("srun "))
    assert " --kill-on-bad-exit=1 --wait=0 " in srun
    assert (job["gpu_hours"], job["cpu_hours"], job["node_hours"]) == (16.0, 4.0, 4.0)


@pytest.mark.parametrize(
    ("resources", "options", "words"),
    [
        ("", (), "at most 2 GPU-hours, 2 CPU-hours and 600 files"),
        ("", ("-t", "83-08"), "at most 4000 GPU-hours, 4000 CPU-hours and"),
        ("gpus = 0\ncpus = 64", (), "at most 0 GPU-hours, 128 CPU-hours and 600 files"),
        ("gpus = 4", ("--extra", "cpus-per-gpu=8"), "at most 8 GPU-hours, 64 CPU-hours and"),
        ("cpus = 2", ("--extra", "mincpus=16"), "at most 2 GPU-hours, 32 CPU-hours and"),
        ("nodes = 3\ncpus = 2", ("--extra", "exclusive"), "at most 6 hours of whole nodes and"),
    ],
)
def test_a_dry_run_says_what_it_can_cost(shell, resources, options, words):
    """Many sites bill CPUs, and of a node that is shared with nobody all that it has."""
    (shell.cwd / "site.toml").write_text('scheduler = "slurm"\n')
    with (shell.cwd / "h.toml").open("a") as spec:
        spec.write(f'[resources]\ntime = "01:00:00"\n{resources}\n')
    done = shell.run("submit", "-n", "--site", "site.toml", *options, "h.toml")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--extra", "array=0-9"), 5, "extra 'array=0-9': vmcjob sets --array itself"),
        (("--extra", "--bad"), 5, "expected KEY or KEY=VALUE"),
        (("-t", "soon"), 2, "--time: expected a wall time like"),
        (("-p", "a\nb"), 2, "--partition: expected a string of one line"),
        (("--runs", "a'b"), 5, "choose another --runs"),
        (("--runs", "a\nb"), 5, "choose another --runs"),
        (("--local", "-p", "gpu"), 2, "the runs stay on this machine"),
    ],
)
def test_what_slurm_cannot_be_told_is_refused(shell, options, code, message):
    (shell.cwd / "site.toml").write_text('scheduler = "slurm"\n')
    done = shell.run("submit", "-n", "--site", "site.toml", *options, "h.toml")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_users_module_in_the_current_directory_does_not_reach_launcher_or_worker(shell):
    """Installed commands do not look for modules in the current directory; nor may ours."""
    (shell.cwd / "json.py").write_text("raise SystemExit('hit by json.py')")
    program = "from vmcjob.cli import main; main()"
    with busy_slot(shell.runs):
        done = shell.run("submit", "h.toml", python=(sys.executable, "-P", "-c", program))
        assert done.returncode == 0, done.stderr
        run = list_runs(shell.runs)[0]
        submission = run.read_submission()
        assert submission is not None
        assert submission.launcher is not None
        time.sleep(0.5)
        assert submission.launcher.is_alive()
    assert "hit by" not in (shell.runs / ".local" / "launchers.log").read_text()


def test_interrupting_follow_detaches_and_cancels_nothing(shell):
    with busy_slot(shell.runs):
        with shell.start("submit", "--follow", "h.toml") as follow:
            assert follow.stderr is not None
            wait_until(lambda: "queued" in follow.stderr.readline(), "it follows")
            follow.send_signal(signal.SIGINT)
            output, talk = follow.communicate()
        assert follow.returncode == 130
        assert "detached; the runs go on" in talk
        assert "Traceback" not in talk
        assert {examine(run).state for run in list_runs(shell.runs)} == {State.QUEUED}
        assert output.count("submitted") == 2


def test_a_damaged_run_is_named_while_the_others_are_submitted(shell):
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
    broken, whole = list_runs(shell.runs)
    broken.record_path.write_text("{")
    with busy_slot(shell.runs):
        for options in (["-n"], []):
            done = shell.run("submit", "h.toml", *options)
            assert done.returncode == 1
            assert done.stderr.count("run.json: damaged") == 1
            assert "Traceback" not in done.stderr
        assert f"{broken.path.name}     0  skipped: its directory cannot be used" in done.stdout
        assert examine(whole).state is State.QUEUED


def test_following_ends_with_the_energy(shell):
    """What is finished already is followed too: the answer is the same."""
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
    first, second = list_runs(shell.runs)
    finish(first)
    finish(second, energy=-0.5, error=0.0002)
    done = shell.run("submit", "--follow", "h.toml")
    assert done.returncode == 0
    assert "-1.174476(12)" in done.stdout.splitlines()[-2]
    assert "-0.50000(20)" in done.stdout.splitlines()[-1]


def test_following_a_run_that_does_not_end_well_is_exit_code_3(shell):
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
    first, second = list_runs(shell.runs)
    finish(first)
    second.write_outcome(OutcomeRecord(outcome=Outcome.DIVERGED, message="NaN at step 7"))
    done = shell.run("submit", "--follow", "h.toml")
    assert done.returncode == 3
    assert "NaN at step 7" in done.stderr


@pytest.mark.parametrize(
    ("root", "words"),
    [("h.toml", "the runs root is a file"), ("h.toml/runs", "{cwd}/h.toml is a file")],
)
@pytest.mark.parametrize("more", [(), ("-n",)])
def test_a_runs_root_that_is_a_file_is_named(shell, root, words, more):
    """And not a run below it, which nobody has ever seen."""
    done = shell.run("submit", "h.toml", "--runs", root, *more)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{root}: {words.format(cwd=shell.cwd)}, not a directory; move it away, or name another "
        "runs root with --runs\n"
    )


def test_an_optimizer_that_cannot_run_here_is_refused_before_it_waits(shell):
    """Else a job waits for hours to say that kfac-jax does not run on its JAX."""
    for name, version in {"jax": "0.12.0", "kfac_jax": "0.0.8"}.items():
        folder = shell.cwd / "releases" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        title = name.replace("_", "-")
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {title}\nVersion: {version}\n"
        )
    path = f"{shell.cwd / 'releases'}:{shell.environment['PYTHONPATH']}"
    shell = replace(shell, extra={**shell.extra, "PYTHONPATH": path})
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\noptimizer.kind = "kfac"\n'
    (shell.cwd / "kfac.toml").write_text(text)
    words = "kfac.toml: optimizer.kind: kfac-jax 0.0.8 does not run on JAX 0.12.0; pip install"
    done = shell.run("validate", "kfac.toml")
    assert done.returncode == 0  # elsewhere it is good
    assert done.stderr.startswith(words)
    for options in ((), ("-n",)):
        done = shell.run("submit", "kfac.toml", *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(words)
    assert not shell.runs.exists()
