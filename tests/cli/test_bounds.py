"""Hostile input: the work is bounded, and so is what is said about it."""

import os
import time

import pytest

from tests.cli.shell import Shell, finish
from tests.runs import make_run
from vmcjob.errors import SpecError
from vmcjob.rundir import Outcome, OutcomeRecord
from vmcjob.spec import parse_spec

SWEPT = """name = "h2"
{seeds}
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, "{{R}}"]{more}]
[sweep]
R = [{values}]
"""
MAX_S = 10.0  # on a machine that is busy with other tests; each takes less than one


def complaint_of(text: str) -> str:
    """What is said about a spec, and said soon."""
    began = time.process_time()
    with pytest.raises(SpecError) as refusal:
        parse_spec(text, "x.toml")
    assert time.process_time() - began < MAX_S
    return str(refusal.value)


def count_up(n: int) -> str:
    return ",".join(map(str, range(n)))


def test_a_sweep_of_too_many_values_is_counted_and_not_read() -> None:
    text = SWEPT.format(seeds="", more="", values=count_up(150_000))
    assert complaint_of(text) == (
        "x.toml:5:2: sweep: 150000 jobs are more than the 10000 that one spec may ask for\n"
        "    [sweep]\n     ^"
    )


def test_seeds_of_too_many_are_counted_and_not_read() -> None:
    text = f'name = "h"\nseeds = [{count_up(150_000)}]\n'
    first, *_ = complaint_of(text).splitlines()
    assert first == (
        "x.toml:2:1: seeds: 150000 jobs are more than the 10000 that one spec may ask for"
    )


def test_a_sweep_of_large_molecules_is_counted_and_not_read() -> None:
    more = "".join(f', ["H", {i}, 0, 0]' for i in range(1, 500))
    first, *_ = complaint_of(SWEPT.format(seeds="", more=more, values=count_up(9000))).splitlines()
    assert first == (
        "x.toml:5:2: sweep: 9000 geometries of 501 nuclei are too many for one spec; split it"
    )


def test_too_many_atoms_are_counted_and_not_compared() -> None:
    atoms = ",".join(['["H",0,0,0]'] * 20_000)
    first, line, caret = complaint_of(f'name = "h"\nsystem.atoms = [{atoms}]\n').splitlines()
    assert first == (
        'x.toml:2:16: system.atoms: expected an array of atoms, each like ["H", 0.0, 0.0, 1.4], '
        "at most 1000 of them, got an array of 20000 values"
    )
    assert (len(line), caret.strip()) == (4 + 100, "^")


def test_many_atoms_in_one_place_are_told_of_fifty_times() -> None:
    atoms = ",".join(['["H",0,0,0]'] * 1000)
    lines = complaint_of(f'name = "h"\nsystem.atoms = [{atoms}]\n').splitlines()
    assert len(lines) == 3 * 50 + 1
    assert lines[0] == (
        "x.toml:2:29: system.atoms[1]: this H is 0 bohr from the H of system.atoms[0]; nuclei are "
        "at least 0.001 bohr apart"
    )
    assert lines[-1] == "x.toml: there are more mistakes; correct these first"


def test_nuclei_are_compared_across_the_borders_of_cubes() -> None:
    """0.0009995 and 0.0010005 bohr lie in different ones, and are too near all the same."""
    text = 'name = "h"\n[system]\natoms = [["H", 0.0009995, 0, -1e-9], ["H", 0.0010005, 0, 1e-9]]\n'
    first, *_ = complaint_of(text).splitlines()
    assert first.startswith("x.toml:3:38: system.atoms[1]: this H is 1e-06 bohr from the H of ")


def test_many_unknown_keys_are_not_all_compared_with_all_known_ones() -> None:
    text = "\n".join(f"walkres{i} = 1" for i in range(40_000))
    lines = complaint_of(text).splitlines()
    assert len(lines) == 3 * 50 + 1
    assert lines[-1] == "x.toml: there are more mistakes; correct these first"


@pytest.mark.parametrize(
    "text",
    [
        "{long} = 1",
        'name = "{long}"',
        "[{long}]\na = 1",
        'name = "h"\n[system]\natoms = [["H", 0, 0, "{{{long}}}"]]',
        'name = "h"\n[system]\natoms = [["{long}", 0, 0, 0]]',
        "name = {long}",
        "name = 'h'\n{long} = 1\n{long} = 2",
        "[sweep]\n{long} = [1]",
    ],
)
def test_a_complaint_does_not_quote_what_nobody_reads(text) -> None:
    said = complaint_of(text.replace("{long}", "x" * 100_000))
    assert max(map(len, said.splitlines())) < 700


def test_a_document_of_megabytes_is_not_parsed() -> None:
    text = SWEPT.format(seeds="", more="", values=count_up(300_000))
    assert complaint_of(text) == "x.toml: larger than 1 MiB; vmcjob reads smaller documents only"


def test_files_without_an_end_are_not_read(shell: Shell) -> None:
    """Neither as a spec nor as a site profile; a FIFO would never even open."""
    os.mkfifo(shell.cwd / "fifo.toml")
    (shell.cwd / "zero.toml").symlink_to("/dev/zero")
    for name in ("fifo.toml", "zero.toml"):
        sentence = f"{name}: cannot be read: not a regular file\n"
        done = shell.run("validate", name)
        assert (done.returncode, done.stderr) == (2, sentence)
        done = shell.run("status", "--site", name)
        assert (done.returncode, done.stderr) == (2, sentence)


ESCAPE, TURNED = "\x1b[31m", "\u202e"


@pytest.mark.slow
def test_what_others_wrote_is_shown_and_not_obeyed(shell: Shell) -> None:
    """In specs, file names, selectors and messages: as the complaint's own words and as data."""
    name = f"a{ESCAPE}{TURNED}.toml"
    (shell.cwd / name).write_text(f'name = "h"\n"{TURNED}" = 1\n', "utf-8")
    run = finish(make_run(shell.runs, point={"R": TURNED}))
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message=f"{ESCAPE}{TURNED}"))
    run.write_spec_text(f'name = "{TURNED}"  # {ESCAPE}\n')
    commands = ["status", "show h2", "logs h2", "aggregate", "aggregate -o -", "status --json"]
    calls = [command.split() for command in commands]
    calls += [["validate", name], ["status", ESCAPE + TURNED], ["validate", ESCAPE + TURNED]]
    calls += [["submit", "--site", ESCAPE, "h.toml"], ["status", "--runs", TURNED]]
    run.log_path.write_text(ESCAPE + TURNED)
    for call in calls:
        done = shell.run(*call)
        assert "\x1b" not in done.stdout + done.stderr, call
        assert TURNED not in done.stdout + done.stderr, call
    said = shell.run("status", ESCAPE + TURNED).stderr
    assert said == "no run matches '\\x1b[31m\\u202e' in runs; vmcjob status lists all runs\n"
    shown = shell.run("show", "h2").stdout
    assert '# spec.toml\nname = "\\u202e"  # \\x1b[31m\n' in shown
