"""plot, as users type it."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cli.shell import Shell, finish
from tests.forks import DRAWING
from tests.runs import make_record
from tests.test_curve import DISTANCE, ENERGY
from vmcjob.cli.app import app
from vmcjob.cli.curve import note_open_points
from vmcjob.rundir import RunDir
from vmcjob.spec import dump_spec, parse_spec
from vmcjob.spec.sampler import Sampler
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES

N_STEPS, N_TRAIN = 400, 400
ERROR = 2e-5  # hartree, of the mean of so many steps
VARIANCE = Sampler().walkers * N_STEPS * ERROR**2  # of local energies, hartree²


def make_finished(
    root: Path,
    run_id: str,
    energy: float,
    atoms: str,
    seed: int = 0,
    *,
    n_train: int = N_TRAIN,
    tables: str = "",
    continues: str | None = None,
    **changes: object,
) -> None:
    """A finished run of white noise about an energy, so that its mean has the error above."""
    record = make_record(run_id, **changes)
    text = f'name = "{record.name}"\n[system]\natoms = {atoms}\n{tables}'
    run = RunDir.create(root, record, dump_spec(parse_spec(text, "x.toml").points[0].spec))
    finish(run)
    shutil.rmtree(run.store_path, ignore_errors=True)
    layout = Layout(n_train=n_train, n_evaluate=N_STEPS, n_walkers=2, n_electrons=2, n_snapshots=0)
    provenance = {"continues": {"run_id": continues}} if continues else {}
    store = RunStore.create(
        run.store_path, run_id=run.path.name, spec_text="", provenance=provenance, layout=layout
    )
    noise = np.random.default_rng(seed).normal(size=N_STEPS)
    energies = energy + ERROR * N_STEPS**0.5 * noise
    ones = np.ones(N_STEPS)
    columns = dict.fromkeys(SERIES["evaluate"], ones)
    columns |= {"energy": energies, "variance": VARIANCE * ones, "s2": 0.0 * ones}
    training = dict.fromkeys(SERIES["train"], np.ones(n_train))
    training |= {"energy": energies[:n_train], "variance": VARIANCE * np.ones(n_train)}
    checkpoint = Checkpoint("evaluate", N_STEPS, {})
    store.commit(Commit(train=training, evaluate=columns, checkpoint=checkpoint))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven distances of H₂ with the exact energies and noise, and the hydrogen atom."""
    root = tmp_path_factory.mktemp("finished")
    for number, (distance, energy) in enumerate(zip(DISTANCE[:11], ENERGY[:11], strict=True)):
        atoms = f'[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, {distance}]]'
        run_id, point = f"h2-00000000{number:02}", {"R": float(distance)}
        make_finished(root, run_id, energy, atoms, number, point=point)
    make_finished(root, "h-0000000000", -0.5, '[["H", 0.0, 0.0, 0.0]]', 99, point={})
    return root


@pytest.fixture
def shell(shell: Shell) -> Shell:
    """The shell of other tests, whose commands have imported matplotlib."""
    return replace(shell, modules=DRAWING)


@pytest.fixture
def curve(shell: Shell, finished: Path) -> Shell:
    """A shell where these runs are."""
    shutil.copytree(finished, shell.runs, dirs_exist_ok=True)
    return shell


def drawn(shell: Shell) -> list[str]:
    """Pictures in the working directory."""
    return sorted(path.name for path in shell.cwd.iterdir() if path.suffix in (".png", ".svg"))


@pytest.mark.slow
def test_each_run_has_a_picture_named_after_it(curve: Shell) -> None:
    """In a folder of its own if there are several, as a PNG, unless one says otherwise."""
    done = curve.run("plot", "h-0000000000", "h2-0000000003")
    assert done.returncode == 0, done.stderr
    assert drawn(curve) == []  # a sweep would fill the directory
    assert {path.name for path in (curve.cwd / "plots").iterdir()} == {
        "h-0000000000.png",
        "h2-0000000003.png",
    }
    assert "wrote plots/h2-0000000003.png" in done.stderr
    done = curve.run("plot", "h2 R=0.8", "-o", "deep/down/h.svg")
    assert done.returncode == 0, done.stderr
    picture = (curve.cwd / "deep/down/h.svg").read_text()
    assert "evaluation step" in picture
    assert ">h2 R=0.8 seed 0 (h2-0000000000)<" in picture
    assert "width (of the distance)" in picture  # the default moves are scaled
    done = curve.run("plot", "h-0000000000", "-o", "folder", "--format", "pdf")
    assert (curve.cwd / "folder/h-0000000000.pdf").read_bytes()[:5] == b"%PDF-"


def test_a_curve_has_constants_with_errors(curve: Shell) -> None:
    """Of exact energies with errors of 2e-5 hartree: bond length, depth and frequency of H₂."""
    done = curve.run("plot", "h2", "--curve", "--fragments", "2*h", "-o", "h2.svg")
    assert done.returncode == 0, done.stderr
    facts = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    facts = {name: words.strip() for name, words in facts.items()}
    assert facts["minimum"].startswith("1.40")
    assert facts["minimum"].endswith("bohr")
    assert facts["dissociation energy"].startswith("0.174")
    frequency = float(facts["frequency"].partition("(")[0])
    assert frequency == pytest.approx(4401, rel=0.01)
    assert "reduced mass 0.503912 u" in facts["frequency"]
    assert "distance (bohr)" in (curve.cwd / "h2.svg").read_text()


@pytest.mark.slow
def test_a_report_has_the_curve_and_the_sums(curve: Shell) -> None:
    """A sweep with its minimum, and what was asked to be added up."""
    runs = "h", *(f"h2-000000000{number}" for number in range(1, 7))
    done = curve.run("report", *runs, "-o", "all.html", "--diff", "2*h - h2 R=1.4")
    assert done.returncode == 0, done.stderr
    page = (curve.cwd / "all.html").read_text()
    assert "<h2>Curve of h2</h2>" in page
    assert "<dt>minimum</dt><dd>1.40" in page
    assert '<td data-title="sum">2*h - h2 R=1.4</td><td data-title="energy">0.174' in page
    done = curve.run("report", *runs, "-o", "all.html", "--diff", "h - h2 R=1.4")
    assert (done.returncode, "does not balance" in done.stderr) == (2, True)


@pytest.mark.slow
def test_runs_are_compared_in_one_picture(curve: Shell) -> None:
    """Named after what it is."""
    done = curve.run("plot", "h2", "--compare", "--format", "svg")
    assert done.returncode == 0, done.stderr
    assert drawn(curve) == ["comparison.svg"]
    assert ">h2 R=1.4 seed 0<" in (curve.cwd / "comparison.svg").read_text()


def test_a_run_that_cannot_be_drawn_does_not_keep_the_others(curve: Shell) -> None:
    """It is named, and the exit code is 3."""
    shutil.rmtree(curve.runs / "h2-0000000001" / "run.zarr")
    done = curve.run("plot", "h2-0000000000", "h2-0000000001")
    assert done.returncode == 3
    assert [path.name for path in (curve.cwd / "plots").iterdir()] == ["h2-0000000000.png"]
    assert "h2-0000000001: has no results yet" in done.stderr
    assert "1 of 2 runs could not be drawn" in done.stderr


@pytest.mark.slow
def test_curves_of_two_sweeps_are_drawn_side_by_side(curve: Shell) -> None:
    """Each with the constants of its own."""
    for number, (distance, energy) in enumerate(zip(DISTANCE[:11], ENERGY[:11], strict=True)):
        atoms = f'[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, {distance}]]'
        run_id, point = f"warm-00000000{number:02}", {"R": float(distance)}
        make_finished(curve.runs, run_id, energy + 1e-3, atoms, 50 + number, point=point)
    done = curve.run("plot", "h2", "warm", "--curve", "-o", "both.svg")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("curve")] == [
        "curve           h2",
        "curve           warm",
    ]
    assert "difference (mHa)" in (curve.cwd / "both.svg").read_text()


def test_a_curve_without_a_minimum_is_drawn_and_says_why(curve: Shell) -> None:
    """Three distances are too few."""
    names = [f"h2-000000000{number}" for number in range(3)]
    done = curve.run("plot", *names, "--curve")
    assert done.returncode == 3
    assert "no minimum: 3 points; a fit takes at least 4" in done.stderr
    assert drawn(curve) == ["curve.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--curve", "--compare"], 2, "choose one"),
        (["--curve", "--path"], 2, "choose one"),
        (["h2", "--path"], 2, "and here is none; only a spec with a table [relax] makes one"),
        (["h2", "--fragments", "2*h"], 2, "--fragments is for --curve"),
        (["h2", "--curve", "--fragments", "2*li"], 2, "there is no energy of li"),
        (["h2", "--curve", "--fragments", "h"], 2, "1 H against 2, 1 electrons against 2"),
        (["h2", "--curve", "--fragments", "2*"], 2, "expected a sum like"),
        (["--curve"], 2, "a curve is one sweep over one key"),
        (["h2", "-o", "all.png"], 2, "one file for 11 runs"),
        (["h-0", "-o", "h.gif"], 2, "pictures are png, svg, pdf"),
        (["h-0", "-o", "runs/h-0000000000/h.png"], 2, "belongs to runs"),
        (["nobody"], 4, "nobody"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    curve: Shell, arguments: list[str], code: int, words: str
) -> None:
    """Before anything is drawn."""
    done = curve.run("plot", *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in done.stderr
    assert drawn(curve) == []


H2 = '[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]'
SHORT, LONGER, TRAINED, LONGEST = (f"h2-000000000{number}" for number in range(1, 5))
TRAINED_ON = f'[train]\nstart_from = "{SHORT}"\nfollow_nuclei = true\n'


def test_a_name_extends_the_run_that_trained_on_and_not_the_run_before(shell: Shell) -> None:
    """Both were extended, so that the curve had two points at one distance."""
    make_finished(shell.runs, SHORT, ENERGY[3], H2)
    make_finished(shell.runs, TRAINED, ENERGY[3], H2, 1, tables=TRAINED_ON)
    more = ("--more-steps", "10", "--dry-run", "--json")
    for name in ("h2", "h2-*"):
        done = shell.run("resume", name, *more)
        assert done.returncode == 0, done.stderr
        assert f"left as it is: {SHORT}  trained on in {TRAINED}" in done.stderr
        assert len(json.loads(done.stdout)["submitted"]) == 1
    for names, n_extended in (([SHORT], 1), ([SHORT, TRAINED], 2), ([SHORT, "h2"], 2)):
        done = shell.run("resume", *names, *more)
        assert len(json.loads(done.stdout)["submitted"]) == n_extended, done.stderr
    make_finished(shell.runs, LONGER, ENERGY[3], H2, 2, continues=SHORT)
    done = shell.run("resume", "h2-*", *more)
    assert f"left as it is: {LONGER}  trained on in {TRAINED}" in done.stderr


def test_the_run_that_trained_on_has_the_only_row(shell: Shell) -> None:
    """Also where the run before was extended after that."""
    make_finished(shell.runs, SHORT, ENERGY[3], H2)
    make_finished(shell.runs, LONGER, ENERGY[3], H2, 1, continues=SHORT)
    make_finished(shell.runs, TRAINED, ENERGY[3], H2, 2, tables=TRAINED_ON)
    make_finished(shell.runs, LONGEST, ENERGY[3], H2, 3, tables=TRAINED_ON, continues=TRAINED)
    table = json.loads(shell.run("aggregate", "--json").stdout)
    assert [row["run_ids"] for row in table["rows"]] == [[LONGEST]]
    reasons = {one["run_id"]: one["reason"] for one in table["contained"]}
    assert reasons == {
        SHORT: f"all of it is in {LONGER}",
        LONGER: f"trained on in {LONGEST}",
        TRAINED: f"all of it is in {LONGEST}",
    }


def test_rows_at_one_place_are_named(shell: Shell) -> None:
    """The message once said only that there were two."""
    make_finished(shell.runs, SHORT, ENERGY[3], H2)
    make_finished(shell.runs, LONGER, ENERGY[3], H2, 1, science_sha256="cd" * 32)
    done = shell.run("plot", "--curve")
    assert done.returncode == 2
    assert "two rows are at 1.4: 'h2 R=1.4 " in done.stderr
    assert f"({SHORT}) and 'h2 R=1.4 " in done.stderr
    assert f"({LONGER}); name the runs of the curve by their ids" in done.stderr


def test_without_runs_there_is_nothing_to_draw(tmp_path: Path) -> None:
    """Not an empty success."""
    done = Shell(tmp_path).run("plot")
    assert done.returncode == 4
    assert "nothing to draw" in done.stderr


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_full_disk_is_a_sentence_and_leaves_no_part_of_a_picture(
    kind: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `report`; what was in its place stays."""

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    path = tmp_path / f"h.{kind}"
    path.write_text("of before")
    done = CliRunner().invoke(app, ["plot", "h-0", "--runs", str(finished), "-o", str(path)])
    assert (done.exit_code, done.stderr) == (
        2,
        f"{path}: cannot be written: No space left on device\n",
    )
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, "of before")]


def test_points_that_are_not_converged_are_one_note() -> None:
    """A curve of 40 points once had 40 notes, which hid the constants above them."""
    rows = [SimpleNamespace(name=f"h2 R={n}", why="not yet", converged=n > 1) for n in range(3)]
    assert list(note_open_points(rows[1:])) == ["h2 R=1: not yet"]  # type: ignore[arg-type]
    (note,) = note_open_points(rows)  # type: ignore[arg-type]
    assert note.startswith("2 of 3 points are not converged; vmcjob aggregate")
