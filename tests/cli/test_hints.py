"""The next commands to type: copied and pasted, each must do what its command said."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.shell import finish
from tests.runs import make_run
from vmcjob.cli import status
from vmcjob.cli.hints import (
    DRY,
    OF_ESTIMATE,
    SECONDS,
    after_status,
    curve_of,
    names_of,
    resume_rows,
    typed,
)
from vmcjob.cli.submission import CommandOptions, _hint
from vmcjob.cli.submit import _require_no_runs
from vmcjob.errors import UsageError
from vmcjob.results.table import Exclusion
from vmcjob.rundir import Outcome, OutcomeRecord, RunDir
from vmcjob.runs.status import examine
from vmcjob.scheduler import Receipt
from vmcjob.scheduler.receipt import Skipped


@pytest.mark.parametrize(
    ("words", "command", "without", "hint"),
    [
        ("--color never validate h.toml", "estimate", (), "estimate h.toml"),
        ("--color=never submit -n h.toml", None, DRY, "submit h.toml"),
        ("submit -nf h.toml", None, DRY, "submit -f h.toml"),
        ("submit -fnt 01:00:00 h.toml", None, DRY, "submit -ft 01:00:00 h.toml"),
        ("submit -pnight -n --check h.toml", None, DRY, "submit -pnight h.toml"),
        ("submit --dry-run -- -n.toml -n", None, DRY, "submit -- -n.toml -n"),
        ("estimate --seconds 60 h.toml", "submit -n", (*OF_ESTIMATE, SECONDS), "submit -n h.toml"),
        ("estimate h.toml --seconds=9", "submit -n", (*OF_ESTIMATE, SECONDS), "submit -n h.toml"),
        ("estimate --seeds 9 h.toml", "submit -n", (SECONDS,), "submit -n --seeds 9 h.toml"),
    ],
)
def test_a_command_is_repeated_without_options_of_another(
    monkeypatch, words: str, command: str | None, without: tuple[str, ...], hint: str
) -> None:
    """Options of the program, joined letters and values of options stayed in the hint."""
    monkeypatch.setattr(sys, "argv", ["vmcjob", *words.split()])
    assert typed(command=command, without=without) == hint


def test_a_row_of_a_tree_is_named_without_its_branch(monkeypatch, capsys, tmp_path: Path) -> None:
    """The branch is no part of the name; the command looks where the runs are."""
    run = make_run(tmp_path, "h2-0000000000")
    run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="out of luck"))
    row = replace(examine(run), run_id="└─ h2-0000000000")
    logs, resume = after_status([row], " --runs r")
    assert (logs, resume) == ("logs --runs r h2-0000000000", "resume --runs r h2-0000000000")
    monkeypatch.setattr(status, "n_columns", lambda: 80)
    status._say_cut([row], "a table without the note", " --runs r")
    assert capsys.readouterr().err == "h2-0000000000: out of luck\n"


def test_a_command_for_runs_of_one_name_has_the_name(tmp_path: Path, capsys) -> None:
    """Ten runs of a curve were resumed by ten commands, and only the first was printed."""
    lih, h2 = ["lih-0000000000", "lih-1111111111"], "h2-0000000000"
    rows = []
    for run_id in lih:
        run = make_run(tmp_path, run_id)
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="out of luck"))
        rows.append(examine(run))
    runs = [*(row.run for row in rows), make_run(tmp_path, h2)]
    assert (names_of([runs[0], runs[2]]), names_of(runs)) == (f"{lih[0]} {h2}", f"lih {h2}")
    assert list(after_status(rows, "")) == [f"logs {lih[0]}", "resume lih"]
    skipped = tuple(Skipped(RunDir(tmp_path / one), one, "queued") for one in lih)
    _hint(Receipt((), skipped), CommandOptions())
    assert capsys.readouterr().err.endswith("\n  vmcjob cancel lih\n")


def test_a_command_names_no_run_that_is_not_meant(tmp_path: Path) -> None:
    """`cancel h2` after two further seeds, and `resume h2` for failures, took other runs too."""
    runs = [make_run(tmp_path, f"h2-000000000{number}") for number in range(3)]
    for run in runs[:2]:
        run.write_outcome(OutcomeRecord(outcome=Outcome.FAILED))
    failed = [examine(run) for run in runs[:2]]
    ids = "h2-0000000000 h2-0000000001"
    assert list(after_status(failed, "")) == ["logs h2-0000000000", f"resume {ids}"]
    finish(runs[2])  # which neither cancel nor resume changes
    assert names_of(runs[:2]) == "h2"
    assert names_of(runs[:2], are_finished=True) == ids  # resume --more-steps would


def row_of(run_id: str, resume_with: str) -> SimpleNamespace:
    return SimpleNamespace(run_ids=(run_id,), resume_with=resume_with)


def test_rows_that_need_the_same_are_resumed_by_one_command() -> None:
    """By the name, unless it means other runs too: these would be trained on, or refused."""
    train, more = "--more-training 1000", "--more-steps 500"
    ids = [f"lih-000000000{number}" for number in range(3)]
    alike = [row_of(run_id, train) for run_id in ids]

    def told(rows: list[SimpleNamespace], *selectors: str, excluded: tuple[str, ...] = ()):
        left_out = [Exclusion(run_id, "failed") for run_id in excluded]
        table = SimpleNamespace(rows=rows, excluded=left_out)
        return list(resume_rows(table, selectors, " -r"))  # type: ignore[arg-type]

    assert told(alike) == told(alike, "lih") == [f"resume -r lih {train}"]
    by_ids = [f"resume -r {' '.join(ids)} {train}"]
    assert told(alike, "lih-*") == told(alike, excluded=("lih-0000000009",)) == by_ids
    assert told([*alike[:2], row_of(ids[2], "")]) == [f"resume -r {ids[0]} {ids[1]} {train}"]
    assert told([alike[0], row_of("h2-0000000000", more)]) == [
        f"resume -r {ids[0]} {train}",
        f"resume -r h2-0000000000 {more}",
    ]


def test_a_sweep_over_one_number_is_offered_as_a_curve() -> None:
    """Whoever had computed a curve was not told how to see it."""
    points = [{"R": 1.0 + number} for number in range(4)]
    assert list(curve_of(points, ("lih",), " --runs r")) == ["plot --curve --runs r lih"]
    words = [{"optimizer.kind": kind} for kind in ("sr", "adam", "kfac", "lamb")]
    other = [points[:3], words, [*points, {}], [{**point, "a": 1} for point in points]]
    assert [list(curve_of(one, (), "")) for one in other] == [[]] * 4


def test_a_run_in_place_of_a_spec_is_resumed_where_it_is(tmp_path: Path) -> None:
    make_run(tmp_path, "h2-0000000000")
    words = "is a run, not a spec; vmcjob resume --runs r h2-0000000000 goes on with it"
    with pytest.raises(UsageError, match=words):
        _require_no_runs([Path("h2-0000000000")], tmp_path, " --runs r")


def test_a_finished_run_that_took_over_keys_is_finished(capsys, tmp_path: Path) -> None:
    """Behind the state stands which keys were taken over, and the next command was not named."""
    run = finish(make_run(tmp_path, "h2-0000000000"))
    skipped = Skipped(run, run.path.name, "finished; took over system.reference")
    _hint(Receipt((), (skipped,)), CommandOptions())
    assert "vmcjob resume h2-0000000000 --more-steps 1000\n" in capsys.readouterr().err
