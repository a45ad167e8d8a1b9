"""Tests of the origins of a spec's values."""

from pathlib import Path

from vmcjob.spec import Overrides, dump_spec, parse_spec, read_spec
from vmcjob.spec.override import NONE

SPEC = """name = "h2"
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, "{R}"]]
[sampler]
walkers = 64
steps = 5
[sweep]
R = [1.0,
     1.4]
"optimizer.damping" = [1e-3]
"""


def origins(path: Path, text: str = SPEC, overrides: Overrides = NONE) -> list[dict]:
    path.write_text(text)
    return [{**point.origins} for point in read_spec(path, overrides).points]


def test_a_value_comes_from_its_line_or_its_flag_and_others_are_defaults(tmp_path) -> None:
    """A flag wins over a line; a swept key comes from its line of [sweep]; defaults have none."""
    path = tmp_path / "h2.toml"
    flags = Overrides(["sampler.walkers=128", 'name="h3"'], ["sampler.target_acceptance=0.5"], 2)
    found = origins(path, SPEC, flags)
    assert len(found) == 4
    assert found[0] == {
        "name": '--set name="h3"',
        "seed": "--seeds 2",
        "system.atoms": f"{path}:3",
        "sampler.walkers": "--set sampler.walkers=128",
        "sampler.steps": f"{path}:6",
        "sampler.target_acceptance": "--sweep sampler.target_acceptance=0.5",
        "optimizer.damping": f"{path}:10",
    }


def test_seeds_and_tables_of_one_line_have_lines_too(tmp_path) -> None:
    """`seeds` gives the key `seed`, and an inline table its keys."""
    text = 'seeds = [3]\nname = "h"\nsystem.atoms = [["H", 0, 0, 0]]\nsampler = { walkers = 8 }\n'
    path = tmp_path / "h.toml"
    lines = {"name": 2, "seed": 1, "system.atoms": 3, "sampler.walkers": 4}
    assert origins(path, text) == [{key: f"{path}:{line}" for key, line in lines.items()}]


def test_atoms_of_a_file_come_from_the_key_that_names_it(tmp_path) -> None:
    """The unit comes with the file, so a default would be untrue."""
    (tmp_path / "h.xyz").write_text("1\n\nH 0 0 0\n")
    path = tmp_path / "h.toml"
    (found,) = origins(path, 'name = "h"\n[system]\nxyz = "h.xyz"\n')
    at = f"{path}:3"
    assert found == {"name": f"{path}:1", "system.atoms": at, "system.unit": at}


def test_a_key_that_an_old_spec_lacks_is_no_default(tmp_path) -> None:
    """A resolved spec of an earlier release: its missing key does not have today's default."""
    (point,) = parse_spec('name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n', "h").points
    lines = dump_spec(point.spec).splitlines()
    old = "\n".join(line for line in lines if not line.startswith("min_ess"))
    (found,) = origins(tmp_path / "old.toml", old)
    assert found["train.min_ess"] == "not in the spec file, which is older than this key"


def test_in_a_chain_only_the_first_point_is_pretrained_by_the_spec(tmp_path) -> None:
    """Later points do without the table [pretrain], so its line did not give their values."""
    chain = SPEC.replace('"optimizer.damping" = [1e-3]\n', "")
    more = '[train]\nstart_from = "@previous"\n[pretrain]\nsteps = 3\n'
    first, second = origins(tmp_path / "h2.toml", chain + more)
    assert "pretrain.steps" in first
    assert "pretrain.steps" not in second
