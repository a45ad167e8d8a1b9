"""keys, as users type it: what a spec may say is listed from where it is declared."""

import dataclasses
import json

import pytest

from vmcjob.cli.keys import describe_keys, spec_keys
from vmcjob.spec import JobSpec, Variations, parse_spec


def test_a_key_is_listed_with_default_range_and_meaning(shell):
    done = shell.run("keys", "sampler.walkers")
    assert done.returncode == 0
    title, row = done.stdout.splitlines()
    assert title.split() == ["key", "default", "expected", "meaning"]
    assert row.split("  ")[0] == "sampler.walkers"
    assert " 512 " in row
    assert "an integer from 2 to 1000000" in row
    assert row.endswith("in all, shared by the devices")


def test_a_table_is_all_of_its_keys_kind_by_kind(shell):
    rows = json.loads(shell.run("keys", "ansatz", "seed", "--json").stdout)
    assert rows[0]["key"] == "seed"  # in the order of a spec, whatever that of the arguments
    assert {row["kind"] for row in rows[1:]} == {"ferminet", "psiformer", "slater-jastrow"}
    assert all(row["key"].startswith("ansatz.") for row in rows[1:])


def test_what_is_no_key_is_told_the_nearest(shell):
    done = shell.run("keys", "sampler.walker")
    assert done.returncode == 2
    assert done.stderr == (
        "sampler.walker: no table or key of a spec; did you mean 'sampler.walkers'?\n"
    )


def test_every_key_of_a_spec_is_listed_and_means_something() -> None:
    rows = list(spec_keys())
    spec = parse_spec('name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n', "h.toml").points[0].spec
    listed = {row.key for row in rows}
    for name, value in vars(spec).items():
        own = (
            (f"{name}.{key}" for key in vars(value)) if dataclasses.is_dataclass(value) else [name]
        )
        assert set(own) <= listed
    assert {row.key.partition(".")[0] for row in rows} == {
        field.name for table in (JobSpec, Variations) for field in dataclasses.fields(table)
    }
    assert not [row for row in rows if not row.meaning or not row.expected]


def test_a_default_is_what_a_spec_may_say() -> None:
    """Written back, the defaults of a table are that table."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n'
    plain = parse_spec(text, "h.toml").points[0].spec
    for table in ("sampler", "pretrain", "train", "evaluate", "numerics", "output", "resources"):
        own = [row for row in spec_keys() if row.key.startswith(f"{table}.") and row.default]
        said = "".join(f"{row.key} = {row.default}\n" for row in own)
        assert getattr(parse_spec(text + said, "h.toml").points[0].spec, table) == getattr(
            plain, table
        )
        assert own


def test_a_narrow_terminal_shows_every_meaning_in_whole() -> None:
    """Of 80 columns, long keys and defaults took so many that meanings were cut."""
    rows = list(spec_keys())
    lines = list(describe_keys(rows, 80))
    assert max(len(line) for line in lines if line.startswith(" ")) <= 80
    text = " ".join(" ".join(lines).split())
    for row in rows:
        assert row.key in text
        assert " ".join(row.meaning.split()) in text


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("maxiter", "optimizer.cg_iterations"),
        ("mode", "optimizer.scores"),
        ("inverse_update_period", "optimizer.inverse_period"),
        ("num_burnin_steps", "optimizer.burn_in"),
        ("curvature_ema", "optimizer.curvature_decay"),
        ("estimation_mode", "optimizer.estimation_mode"),
        ("momentum_growth", "optimizer.momentum_growth"),
    ],
)
def test_a_key_is_found_by_the_word_of_the_libraries_that_users_come_from(shell, word, key):
    """Someone who knows vmcnet or kfac-jax looks for its name of the same setting."""
    rows = json.loads(shell.run("keys", word, "--json").stdout)
    assert [row["key"] for row in rows] == [key]
