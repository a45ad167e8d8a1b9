"""Runs below those that they begin with."""

from pathlib import Path

from tests.runs import make_record, make_run
from vmcjob.rundir import END, RunDir, Submission
from vmcjob.runs.ancestry import as_trees, parent_of
from vmcjob.runs.status import rows

IDS = [f"h2-{digit * 10}" for digit in "abcde"]


def make(root: Path, run_id: str, origin: str | None = None, after: str | None = None) -> RunDir:
    """A run that begins with another, or comes after one."""
    text = 'name = "h2"\n' + (f'[train]\nstart_from = "{origin}"\n' if origin else "")
    run = RunDir.create(root, make_record(run_id, created=float(IDS.index(run_id))), text)
    waits = {after: END} if after else None
    run.write_submission(Submission(scheduler="slurm", job_id="1", waits_for=waits))
    return run


def drawn(root: Path) -> list[str]:
    """The ids as a table would show them."""
    found, errors = rows([RunDir(root / run_id) for run_id in IDS if (root / run_id).exists()])
    assert not errors
    return [row.run_id for row in as_trees(found)]


def test_each_run_stands_below_its_parent(tmp_path):
    a, b, c, d, e = IDS
    make(tmp_path, a, origin=c)
    make(tmp_path, b)
    make(tmp_path, c)
    make(tmp_path, d, after=a)
    make(tmp_path, e, origin=c)
    assert drawn(tmp_path) == [b, c, f"├─ {a}", f"│  └─ {d}", f"└─ {e}"]


def test_a_parent_that_is_not_shown_is_no_matter_and_a_circle_is_shown_too(tmp_path):
    a, b, c = IDS[:3]
    make(tmp_path, a, origin="h2-9999999999")
    make(tmp_path, b, origin=c)
    make(tmp_path, c, origin=b)
    assert drawn(tmp_path) == [a, b, c]


def test_a_chain_of_thousands_is_no_matter(tmp_path, monkeypatch):
    run = make_run(tmp_path, IDS[0])
    (row,), _ = rows([run])
    ids = [f"h2-{number:010d}" for number in range(3000)]
    many = [type(row)(**{**vars(row), "run_id": i, "run": RunDir(tmp_path / i)}) for i in ids]
    before = dict(zip(ids[1:], ids, strict=False))
    monkeypatch.setattr("vmcjob.runs.ancestry.parent_of", lambda run: before.get(run.path.name))
    assert len(as_trees(many)) == 3000


def test_what_a_run_comes_after_counts_where_it_begins_with_nothing(tmp_path):
    run = make(tmp_path, IDS[0], after=IDS[1])
    assert parent_of(run) == IDS[1]
    run.write_spec_text("no TOML [")
    assert parent_of(run) == IDS[1]
