"""The path of a relaxation, from runs that are finished by hand."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.relaxation.fake import MINIMUM, bond_force, finish_last, hessian
from vmcjob.cli.geometries import ending_in_words, show_relaxation
from vmcjob.cli.relax import _end
from vmcjob.cli.submission import CommandOptions
from vmcjob.errors import IncompleteError, RunDirError
from vmcjob.plan import make_plan
from vmcjob.relaxation import path as of_path
from vmcjob.relaxation.path import (
    Ending,
    advance,
    begin,
    ending,
    go_on,
    largest_force,
    plan_of,
)
from vmcjob.rundir import RunDir
from vmcjob.rundir.relaxations import Relaxation, find_relaxations
from vmcjob.spec import parse_spec

SPEC = """
name = "h2"
[system]
atoms = [["H", 0, 0, -0.6], ["H", 0, 0, 0.6]]
[relax]
force_tolerance = 1e-4
[pretrain]
steps = 0
basis = "sto-3g"
[train]
steps = 80
[evaluate]
steps = 400
observables = ["forces"]
observe_every = 1
"""


@pytest.fixture(autouse=True)
def exact_hessian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hartree-Fock has a test of its own, and takes longer than all else here."""
    monkeypatch.setattr(of_path, "hartree_fock_hessian", hessian)


def start(root: Path, text: str = SPEC) -> Relaxation:
    """The path of a spec, as `submit` sees it."""
    plan = make_plan(parse_spec(text, "h2.toml"))
    assert plan.relax is not None
    return begin(plan.tasks[0], plan.source, plan.relax, root)


def distances(path: Relaxation) -> list[float]:
    places = (np.array(one.positions) for one in path.geometries)
    return [float(np.linalg.norm(second - first)) for first, second in places]


def follow(path: Relaxation, root: Path, noise: float = 0.01) -> Relaxation:
    """Go along the path to its end."""
    while ending(path := advance(path, root)) is None:
        finish_last(root, plan_of(path, root), noise)
    return path


def test_a_path_leads_to_the_minimum_and_says_why_it_ends(tmp_path: Path) -> None:
    """The distance is known to its error, which is that of the force over the curvature."""
    path = follow(start(tmp_path, SPEC), tmp_path)
    assert ending(path) is Ending.BELOW_ERROR
    assert path.last.found is not None
    (bond,) = path.last.found.internals
    assert bond.atoms == (0, 1)
    # The noise of 0.01 in 400 steps is 5e-4 of force; the curvature is 0.37.
    assert 0.0010 < bond.error < 0.0020
    assert abs(bond.value - MINIMUM) < 4.0 * bond.error
    force, error = largest_force(path.last.found)
    assert force < 2.0 * error
    # Each atom feels half of the difference of both forces: the force of the bond.
    first = path.geometries[0].found
    assert first is not None
    assert largest_force(first)[0] == pytest.approx(bond_force(1.2), abs=0.002)
    assert len(path.geometries) < 8


def test_without_noise_a_path_ends_below_its_tolerance(tmp_path: Path) -> None:
    path = follow(start(tmp_path), tmp_path, noise=1e-5)
    assert ending(path) is Ending.BELOW_TOLERANCE
    assert distances(path)[-1] == pytest.approx(MINIMUM, abs=1e-3)


def test_a_path_that_forgets_everything_between_two_runs_is_the_same(tmp_path: Path) -> None:
    """Killed before its file was written, it finds the same geometries to the bit again."""
    whole = follow(start(tmp_path), tmp_path)
    again = start(tmp_path)
    while ending(again) is None:
        before, again = again, advance(again, tmp_path)
        assert again != before, "a finished run was not found"
    assert again == whole


def test_a_path_is_read_as_it_was_written(tmp_path: Path) -> None:
    """To the bit; with other limits it goes on from there."""
    path = follow(start(tmp_path, SPEC.replace("1e-4", "0.02")), tmp_path)
    assert ending(path) is Ending.BELOW_TOLERANCE
    path.write(tmp_path)
    assert find_relaxations(tmp_path, [path.run_ids[-1]]) == ([path], [])
    assert find_relaxations(tmp_path, ["h2-0123456789"]) == ([], [])
    further = follow(start(tmp_path), tmp_path)
    assert further.geometries[: len(path.geometries)] == path.geometries
    assert len(further.geometries) > len(path.geometries)


def test_two_that_go_on_along_a_path_go_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job and a person at a login node: other bits of a Hessian there must not fork the path."""
    path = start(tmp_path)
    finish_last(tmp_path, plan_of(path, tmp_path))
    by_job = go_on(path, tmp_path)
    monkeypatch.setattr(of_path, "hartree_fock_hessian", lambda spec: 1.1 * hessian(spec))
    assert advance(path, tmp_path).run_ids != by_job.run_ids
    assert go_on(path, tmp_path) == by_job


def test_who_resumes_a_path_keeps_the_settings_of_its_file(tmp_path: Path) -> None:
    """A job reads the path, then waits; a spec that is submitted meanwhile must not be undone."""
    path = start(tmp_path)
    by_job = go_on(path, tmp_path)
    by_user = go_on(replace(path, max_steps=99), tmp_path, is_new=True)
    assert (by_job.max_steps, by_user.max_steps) == (path.max_steps, 99)
    assert go_on(by_job, tmp_path) == by_user


def test_a_damaged_file_of_a_path_is_named_with_what_helps(tmp_path: Path) -> None:
    path = start(tmp_path)
    path.write(tmp_path)
    for text in ("{", "[]", '{"schema_version": 2}', '{"schema_version": 1}'):
        path.file(tmp_path).write_text(text)
        with pytest.raises(RunDirError, match="remove it and submit the spec again"):
            start(tmp_path)


def test_a_damaged_file_hides_no_other_path(tmp_path: Path) -> None:
    path = start(tmp_path)
    path.write(tmp_path)
    path.file(tmp_path).with_name("other.json").write_text("{")
    found, (error,) = find_relaxations(tmp_path, path.run_ids)
    assert found == [path]
    assert "other.json: cannot be read" in str(error)


@pytest.mark.parametrize(
    ("forces", "errors", "expected"),
    [
        ((4e-4, 0.0), (5e-4, 5e-4), Ending.BELOW_TOLERANCE),
        # Noise is no small force, and a small force that is sure does not keep a path going.
        ((4e-4, 0.0), (9e-3, 9e-3), Ending.BELOW_ERROR),
        ((4e-4, 0.0), (11e-3, 5e-4), Ending.TOO_NOISY),
        ((5e-4, 2e-3), (1e-5, 2e-3), Ending.BELOW_ERROR),
        ((5e-4, 2e-3), (1e-5, 5e-4), None),
    ],
)
def test_the_end_of_a_path_knows_its_errors(forces, errors, expected, tmp_path: Path) -> None:
    """Two components of a force with their errors, at a tolerance of 1e-3."""
    path = start(tmp_path, SPEC.replace("1e-4", "1e-3"))
    finish_last(tmp_path, plan_of(path, tmp_path))
    found = advance(path, tmp_path).geometries[0].found
    assert found is not None
    vectors = [((*pair, 0.0), (*pair, 0.0)) for pair in (forces, errors)]
    found = replace(found, forces=vectors[0], force_errors=vectors[1])
    at_end = path.found(found)
    assert ending(at_end) is expected
    assert ("not known to be relaxed" in ending_in_words(at_end)) == (expected is Ending.TOO_NOISY)
    failure = pytest.raises(IncompleteError) if expected is Ending.TOO_NOISY else nullcontext()
    with failure:  # the command's exit code is then 3
        _end(at_end, CommandOptions(as_json=True))


def test_a_run_that_was_begun_anew_takes_the_path_from_there(tmp_path: Path) -> None:
    """Forces of before must not decide where a path with other results ends."""
    path = follow(start(tmp_path), tmp_path)
    path.write(tmp_path)
    second = RunDir(tmp_path / path.run_ids[1])
    outcome = second.read_outcome()
    assert outcome is not None
    second.write_outcome(replace(outcome, time=outcome.time + 1.0))
    again = advance(start(tmp_path), tmp_path)
    old, new = (one.geometries[1].found for one in (path, again))
    assert old is not None
    assert new is not None
    assert new.finished_at == old.finished_at + 1.0
    assert again == path, "the results are the same"
    shutil.rmtree(tmp_path / path.run_ids[0])
    again = advance(start(tmp_path), tmp_path)
    assert [one.found for one in again.geometries] == [None]


def test_a_path_has_at_most_so_many_geometries(tmp_path: Path) -> None:
    path = follow(start(tmp_path, SPEC.replace("1e-4", "1e-4\nmax_steps = 2")), tmp_path, 1e-5)
    assert len(path.geometries) == 2
    assert ending(path) is Ending.OUT_OF_STEPS
    assert ending(replace(path, max_steps=3)) is None


def test_runs_of_a_path_are_ordinary_runs_that_begin_with_the_run_before(tmp_path: Path) -> None:
    """The first is the run of the spec without relaxation; the others train shortly."""
    path = start(tmp_path)
    alone = make_plan(parse_spec(SPEC.replace("[relax]\nforce_tolerance = 1e-4\n", ""), "h2.toml"))
    assert path.run_ids == (alone.tasks[0].run_id,)
    finish_last(tmp_path, plan_of(path, tmp_path))
    path = advance(path, tmp_path)
    (task,) = plan_of(path, tmp_path).tasks
    assert task.run_id == path.run_ids[1]
    assert task.spec.train.start_from == path.run_ids[0]
    assert (task.spec.train.steps, task.spec.train.follow_nuclei) == (20, True)
    assert task.point == {"geometry": 1}
    positions = tuple(atom.position for atom in task.spec.system.atoms)
    assert positions == path.last.positions
    assert advance(path, tmp_path) == path, "its run has not finished"


def test_fixed_atoms_stay(tmp_path: Path) -> None:
    path = follow(start(tmp_path, SPEC.replace("1e-4", "1e-4\nfixed = [1]")), tmp_path)
    assert {one.positions[1] for one in path.geometries} == {(0.0, 0.0, 0.6)}
    assert distances(path)[-1] == pytest.approx(MINIMUM, abs=0.01)


def test_another_way_along_a_path_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Atoms that are fixed later must not go on with geometries where they moved."""
    path = start(tmp_path)
    others = ("1e-4\nfixed = [1]", "1e-4\ntrain_steps = 30")
    files = [start(tmp_path, SPEC.replace("1e-4", text)).file(tmp_path) for text in others]
    assert len({path.file(tmp_path), *files}) == 3
    assert start(tmp_path, SPEC.replace("1e-4", "2e-4")).file(tmp_path) == path.file(tmp_path)


def test_a_minimum_that_may_be_a_saddle_point_is_told(tmp_path: Path, monkeypatch, capsys) -> None:
    """Forces of a symmetric molecule vanish there too. Catches an end without that word."""
    for sign, is_told in ((1.0, False), (-1.0, True)):
        monkeypatch.setattr(of_path, "hartree_fock_hessian", lambda spec, s=sign: s * hessian(spec))
        path = follow(start(tmp_path / str(sign)), tmp_path / str(sign), noise=1e-5)
        assert ending(path) is Ending.BELOW_TOLERANCE
        show_relaxation(path)
        assert ("may be a saddle point" in capsys.readouterr().out) == is_told


def test_too_short_an_evaluation_is_told(tmp_path: Path) -> None:
    """A force without an error bar says nothing of where to go."""
    path = start(tmp_path)
    run = finish_last(tmp_path, plan_of(path, tmp_path), n_bad=1)
    assert run == RunDir(tmp_path / path.run_ids[0])
    with pytest.raises(RunDirError, match=r"not finite; evaluate longer"):
        advance(path, tmp_path)
