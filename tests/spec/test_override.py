"""Changes of a spec by flags: --set, --sweep, --seeds."""

from pathlib import Path

import pytest

from vmcjob.errors import SpecError, UsageError
from vmcjob.plan import make_plan
from vmcjob.spec import Overrides, parse_spec, read_spec

SPEC = 'name = "h2"\nseed = 3\n[system]\natoms = [["H", 0, 0, 0], ["H", 0, 0, "{R}"]]\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "h2.toml").write_text(SPEC)
    return tmp_path / "h2.toml"


def test_flags_make_the_runs_that_the_same_keys_in_the_file_make(path: Path) -> None:
    """Equal ids: a run that was submitted by a flag is found again by a file, and the reverse."""
    text = SPEC.replace("seed = 3", "seeds = [3, 4]")
    text += '[optimizer]\nkind = "kfac"\n[evaluate]\nobservables = ["dipole"]\n'
    text += "[sampler]\nwalkers = 64\n[sweep]\nR = [1.0, 1.4]\n"
    values = ("optimizer.kind=kfac", 'evaluate.observables=["dipole"]', "sampler.walkers = 64")
    changed = read_spec(path, Overrides(values, ("R=1.0, 1.4",), 2))
    expected = [task.run_id for task in make_plan(parse_spec(text, "h2.toml")).tasks]
    assert [task.run_id for task in make_plan(changed).tasks] == expected
    assert len(set(expected)) == 4


def test_seeds_count_from_the_first_of_the_file(path: Path) -> None:
    path.write_text(SPEC.replace("seed = 3", "seeds = [7, 1]").replace('"{R}"', "1.4"))
    assert [p.spec.seed for p in read_spec(path, Overrides(n_seeds=3)).points] == [7, 8, 9]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (Overrides(["sampler.walkers=many"]), "--set sampler.walkers=many: expected an integer"),
        (Overrides(["train.stps=3"]), "--set train.stps=3: unknown key; did you mean 'steps'?"),
        (Overrides(["trian.steps=3"]), "--set trian.steps=3: unknown table; did you mean 'train'"),
        (Overrides(axes=["R=1.0,x"]), '--sweep R=1.0,x: expected a number, got "x"'),
        (Overrides(axes=["optimizer.damping=-1.0,0.1"]), "--sweep optimizer.damping=-1.0,0.1: exp"),
    ],
)
def test_a_mistake_in_a_flag_names_the_flag(path: Path, overrides, words: str) -> None:
    """A line and caret of the file would send the reader to a file that has no mistake."""
    with pytest.raises(SpecError) as raised:
        read_spec(path, Overrides(overrides.values, ["R=1.4", *overrides.axes]))
    assert any(problem.startswith(words) for problem in raised.value.problems)
    assert not any(".toml:" in problem for problem in raised.value.problems)


@pytest.mark.parametrize("text", ["train.steps", "=3", "train.=3", "train.steps="])
def test_a_change_without_key_or_value_is_a_mistake_of_usage(path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="expected KEY=VALUE, like --set sampler"):
        read_spec(path, Overrides([text]))
