"""init and schema, in this process: Typer's runner, and programs of SLURM that are three lines."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli
from typer.testing import CliRunner, Result

from tests.spec.test_malformed import CATALOGUE
from vmcjob.cli.app import app
from vmcjob.document import write
from vmcjob.site import load_site
from vmcjob.spec import parse_spec, read_spec

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.toml"))
PROFILES = sorted((Path(__file__).parents[2] / "slurm").glob("*.toml"))
XYZ = "2\nlithium hydride\nLi 0 0 0\nH 0 0 1.5957\n"
SINFO = "cpu*|1-00:00:00|64000|32|(null)|10\ngpu|04:00:00|512000|64|gpu:a100:4|2\n"
SHAPES = ("expected ", "unknown ", "missing ")
"""Complaints about one value or key alone, which a schema can express; others need the whole."""

BEYOND = [
    "An active space is two numbers",
    "An active space has room for its electrons",
    "Variables have lists of numbers",
    "A swept value is judged like one in its table, and shown in the sweep",
    "A misspelt swept key is told the nearest",
]
"""Mistakes of this kind that a schema lets pass: none or two numbers, and names in a sweep."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_starter_is_valid_as_it_is_and_with_every_comment_taken_away(folder: Path) -> None:
    """A commented key that is misspelt or out of range teaches a mistake."""
    done = run("init", "new")
    assert done.exit_code == 0, done.output
    path = folder / "new" / "h2.toml"
    assert [line for line in done.stderr.splitlines() if line] == [
        "wrote new/h2.toml",
        "  vmcjob validate new/h2.toml",
        "  vmcjob submit --follow new/h2.toml",
    ]
    (point,) = read_spec(path).points
    text = re.sub(r"^# (?=seeds|[\w\[\"].* = |\[sweep)", "", path.read_text(), flags=re.MULTILINE)
    assert text.count("\n# ") < 5
    points = parse_spec(text, "all.toml").points
    assert {p.spec.system.n_electrons for p in points} == {point.spec.system.n_electrons}
    assert len(points) == 6


def test_the_xyz_file_is_found_from_the_folder_of_the_spec(folder: Path) -> None:
    (folder / "LiH.xyz").write_text(XYZ)
    assert run("init", "a/b", "--xyz", "LiH.xyz").exit_code == 0
    (point,) = read_spec(folder / "a" / "b" / "lih.toml").points
    assert [atom.symbol for atom in point.spec.system.atoms] == ["Li", "H"]


def test_a_curve_of_two_atoms_is_ready_to_run(folder: Path) -> None:
    """Atoms, spin and distances were to be written by hand, in a form that no page showed."""
    (folder / "LiH.xyz").write_text(XYZ)
    assert run("init", "--xyz", "LiH.xyz", "--curve").exit_code == 0
    points = read_spec(folder / "lih.toml").points
    distances = [point.coordinates["R"] for point in points]
    assert len(distances) == 10
    assert distances == sorted(distances)
    assert 0 < float(distances[3]) / 3.0154 - 1.0 < 0.06  # bohr
    for point in points:
        first, second = point.spec.system.atoms
        assert (first.symbol, second.symbol, point.spec.system.spin) == ("Li", "H", 0)
        assert second.position == (0.0, 0.0, point.coordinates["R"])
    (folder / "water.xyz").write_text("3\n\nO 0 0 0\nH 1 0 0\nH 0 1 0\n")
    done = run("init", "--xyz", "water.xyz", "--curve")
    assert (done.exit_code, "water.xyz has 3 atoms, and a curve has 2" in done.stderr) == (2, True)
    assert not (folder / "water.toml").exists()


def test_nothing_is_overwritten_and_nothing_is_written_for_a_wrong_molecule(folder: Path) -> None:
    (folder / "h2.toml").write_text("mine")
    done = run("init")
    assert (done.exit_code, done.stderr) == (
        2,
        "h2.toml: is there already and is not overwritten; choose another DIR\n",
    )
    (folder / "bad.xyz").write_text("no xyz")
    assert run("init", "--xyz", "bad.xyz").exit_code == 2
    assert run("init", "--xyz", "absent.xyz").exit_code == 4
    assert {path.name for path in folder.iterdir()} == {"h2.toml", "bad.xyz"}
    assert (folder / "h2.toml").read_text() == "mine"


def test_a_profile_names_the_partition_with_gpus_and_the_only_account(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM's default partition is often without GPUs, and jobs there would wait for ever."""
    for name, answer in (("sinfo", SINFO), ("sacctmgr", "chem\nchem\n")):
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat <<'E'\n{answer}E\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", f"{folder}/me")
    own = folder / "me" / ".config" / "vmcjob" / "site.toml"
    monkeypatch.setenv("VMCJOB_SITE", "absent.toml")
    assert run("init", "--cluster").exit_code == 4
    assert not own.exists()
    monkeypatch.delenv("VMCJOB_SITE", raising=False)
    done = run("init", "--cluster")
    assert done.exit_code == 0, done.output
    assert "\n  vmcjob doctor --on-node\n" in done.stderr
    site = load_site(None, {"HOME": f"{folder}/me"})
    assert (site.slurm.partition, site.slurm.account) == ("gpu", "chem")
    assert "cpu (default): 10 nodes, 32 CPUs" in own.read_text()
    assert run("init", "--cluster").exit_code == 2
    done = run("init", "here", "--cluster")
    assert (folder / "here" / "site.toml").read_text() == own.read_text()
    assert "\n  vmcjob submit -n --check --site here/site.toml SPEC\n" in done.stderr


CONFIG = """
DefMemPerNode           = UNLIMITED
JobDefaults             = (null)
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
"""
PARTITIONS = "PartitionName=cpu Default=YES DefMemPerNode=2000\nPartitionName=gpu Default=NO {}\n"


@pytest.mark.parametrize(
    ("config", "of_partition", "mem"),
    [
        (CONFIG, "DefMemPerNode=UNLIMITED", "32GB"),
        (CONFIG, "DefMemPerCPU=4000", None),
        (CONFIG, "OverSubscribe=EXCLUSIVE DefMemPerNode=UNLIMITED", None),
        (CONFIG.replace("UNLIMITED", "4000"), "DefMemPerNode=UNLIMITED", None),
        (CONFIG.replace("_MEMORY", ""), "DefMemPerNode=UNLIMITED", None),
    ],
)
def test_a_profile_asks_for_memory_where_a_job_would_get_all_of_its_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: str, of_partition: str, mem: str | None
) -> None:
    """Points of a sweep waited for one another. The container's option was found by failed jobs."""
    only = 'case "$*" in *--userns*) exit 0;; esac\nexit 1\n'
    scontrol = f"case $* in *config*) cat <<'E'\n{config}E\n;; *) cat <<'E'\n"
    programs = {
        "sinfo": f"cat <<'E'\n{SINFO}E\n",
        "sacctmgr": "exit 1\n",
        "apptainer": only,
        "scontrol": f"{scontrol}{PARTITIONS.format(of_partition)}E\n;; esac\n",
    }
    for name, text in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    done = run("init", "--cluster", "here")
    assert done.exit_code == 0
    hints = done.stderr.partition("look through it, then\n")[2]
    assert hints.startswith("\n  vmcjob image build --gpu ~/vmcjob.sif\n  vmcjob doctor --site ")
    site = load_site(folder / "here" / "site.toml", {"HOME": str(folder)})
    assert site.slurm.mem == mem
    assert site.container.options == ("--userns",)


def test_without_a_cluster_there_is_no_profile(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    done = run("init", "--cluster")
    assert done.exit_code == 5
    assert "sinfo is not on PATH" in done.stderr
    assert not list(folder.iterdir())


def schema_of(document: str) -> dict[str, Any]:
    return json.loads(run("schema", document).stdout)


@pytest.mark.parametrize(
    "path", [*JOBS, *PROFILES], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_schema_accepts_what_is_shipped(path: Path) -> None:
    document = "spec" if path in JOBS else "profile"
    assert not problems(schema_of(document), tomli.loads(path.read_text("utf-8")))


def test_the_schema_accepts_a_resolved_spec_of_every_key() -> None:
    """A key that the schema lacks would be underlined in red in an editor."""
    for path in JOBS[:3]:
        spec = read_spec(path).points[0].spec
        assert not problems(schema_of("spec"), tomli.loads(write(spec)))


def test_the_schema_refuses_specs_of_a_wrong_shape() -> None:
    """Of the catalogue of malformed specs: all whose complaint is about one value or key."""
    schema, missed, tried = schema_of("spec"), [], 0
    for entry in CATALOGUE:
        try:
            tables = tomli.loads(entry.spec)
        except tomli.TOMLDecodeError:
            continue
        words = re.match(r"job\.toml:\d+:\d+: (?:(?! )\S+): (.*)", entry.complaints)
        is_of_shape = words is not None and words[1].startswith(SHAPES)
        if not is_of_shape:
            continue
        tried += 1
        if not problems(schema, tables):
            missed.append(entry.title)
    assert tried > 30
    assert missed == BEYOND


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def is_of(type_: str, value: Any) -> bool:
    if isinstance(value, bool):
        return type_ == "boolean"
    return isinstance(value, int | float) if type_ == "number" else isinstance(value, TYPES[type_])


def problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Why a value does not fit a schema, by the few words of JSON Schema that are used here."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_of(type_, value) for type_ in types):
        return [f"{value!r} is not {types}"]
    found = [
        f"{value!r}: {name}"
        for name, holds in CHECKS.items()
        if name in schema and not holds(schema[name], value)
    ]
    for name, least, most in (("anyOf", 1, 99), ("oneOf", 1, 1)):
        if name in schema:
            fitting = sum(not problems(inner, value) for inner in schema[name])
            found += [] if least <= fitting <= most else [f"{value!r}: {fitting} of {name}"]
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, inner in value.items():
            if key not in known and other is False:
                found.append(f"{key}: unknown")
            else:
                found += problems(known.get(key, other), inner)
    if isinstance(value, list) and "items" in schema:
        items = schema["items"]
        parts = items if isinstance(items, list) else [items] * len(value)
        found += [
            p for part, inner in zip(parts, value, strict=False) for p in problems(part, inner)
        ]
    return found


CHECKS: dict[str, Any] = {
    "enum": lambda allowed, value: value in allowed,
    "const": lambda allowed, value: value == allowed,
    "pattern": lambda text, value: re.search(text, value) is not None,
    "minimum": lambda bound, value: value >= bound,
    "maximum": lambda bound, value: value <= bound,
    "exclusiveMinimum": lambda bound, value: value > bound,
    "exclusiveMaximum": lambda bound, value: value < bound,
    "minItems": lambda count, value: len(value) >= count,
    "maxItems": lambda count, value: len(value) <= count,
    "required": lambda names, value: not isinstance(value, dict) or all(n in value for n in names),
}
