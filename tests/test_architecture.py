"""Who may import whom: the rooms of the house and the doors between them."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vmcjob"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
ROOMS: dict[str, set[str]] = {
    # shared by all
    "errors": set(),
    "version": set(),
    "columns": set(),
    # spec, site and plan
    "document": {"errors"},
    "resources": {"document", "errors"},
    "spec": {"columns", "document", "errors", "resources"},
    "site": {"document", "errors", "resources"},
    "plan": {"spec"},
    # runs on disk
    "store": {"columns", "errors"},
    "rundir": {"errors", "store"},
    "protocol": {"errors", "rundir"},
    "runs": {"document", "errors", "protocol", "rundir", "spec"},
    # from a submission to a worker
    "apptainer": {"errors", "protocol", "rundir", "site", "spec"},
    "slurm": {"errors", "protocol", "resources", "rundir"},
    "supervisor": {
        *("apptainer", "errors", "protocol", "resources", "rundir", "runs", "slurm"),
    },
    "scheduler": {
        *("apptainer", "errors", "plan", "protocol", "resources", "rundir", "runs", "site"),
        *("slurm", "spec", "supervisor", "version"),
        "store",  # a run that goes on from another's results is given a copy of them
    },
    "run": {
        *("errors", "observables", "protocol", "rundir", "spec", "stats", "store", "verdict"),
        *("version", "vmc"),
    },
    # the physics
    "fwdlap": set(),
    "vmc": {"columns", "fwdlap"},
    "observables": {"columns", "stats", "vmc"},  # of vmc, nothing but types
    # results
    "stats": set(),
    "verdict": {"stats"},
    "results": {"columns", "errors", "observables", "stats", "store", "verdict"},
    "plot": {"observables", "results", "stats", "store"},
    "relaxation": {"errors", "observables", "plan", "rundir", "spec", "stats", "store"},
    # what a notebook opens: it reads everything and starts nothing
    "analysis": {
        *("columns", "errors", "results", "run", "rundir", "runs", "spec", "stats", "store"),
        "vmc",
    },
}
DOORS = {"cli", "__main__", "__init__"}  # may open every room
MAX_ROOMS, MAX_ARROWS = 28, 100
HEAVY = {
    "jax": {"fwdlap", "vmc", "run", "analysis"},
    "flax": {"vmc"},
    "zarr": {"store"},
    "numpy": {
        *("store", "stats", "verdict", "results", "analysis", "plot"),
        *("run", "vmc", "fwdlap", "observables", "relaxation"),
    },
    "submitit": {"scheduler"},
    "kfac_jax": {"vmc"},
    "optax": {"vmc"},
    "pyscf": {"vmc", "results", "spec", "relaxation"},
    "matplotlib": {"plot"},
    "xarray": {"results"},
    "pandas": {"results"},
    "pyarrow": {"results"},
    "tensorboardX": {"results"},
    "typer": {"cli"},
    "rich": {"cli"},
    "tomli": {"document"},
    "ase": {"spec"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every source file with the room it is in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).with_suffix("").parts[0], path


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_rooms_are_entered_through_the_doors_of_the_plan() -> None:
    """Data flows one way: an arrow that is new, or no longer used, is changed in this table."""
    drawn: dict[str, set[str]] = {}
    for room, path in modules():
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("vmcjob.")}
        drawn.setdefault(room, set()).update(ours - {room})
    differing = {
        room: drawn.get(room, set()) ^ ROOMS.get(room, set())
        for room in (drawn | ROOMS).keys() - DOORS
    }
    assert not {room: arrows for room, arrows in differing.items() if arrows}


def test_the_house_stays_small() -> None:
    """A newcomer keeps the rooms in mind: whatever is added has to fit, or replace something."""
    assert len(ROOMS) <= MAX_ROOMS
    assert sum(map(len, ROOMS.values())) <= MAX_ARROWS


@pytest.mark.parametrize(("room", "path"), list(modules()))
def test_heavy_dependencies_have_their_rooms(room: str, path: Path) -> None:
    """The login node must not pay for JAX or Zarr."""
    for name in imports(path):
        allowed = HEAVY.get(name.split(".")[0])
        assert allowed is None or room in allowed, f"{room} imports {name}"


def test_no_room_leads_back_to_itself() -> None:
    """Two rooms that need each other are one."""
    doors = {"__init__": {"analysis", "version"}, "cli": set(ROOMS), "__main__": {"cli"}}
    TopologicalSorter(ROOMS | doors).prepare()  # CycleError names the rooms


def test_no_module_is_needed_by_what_it_needs() -> None:
    """Whichever is imported first, all are whole by then; what is imported late cannot matter."""
    files = {_dotted(path): path for _, path in modules()}
    graph = {name: _needs(path, set(files)) - {name} for name, path in files.items()}
    TopologicalSorter(graph).prepare()  # CycleError names the modules


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _needs(path: Path, known: set[str]) -> set[str]:
    """The modules that a file imports at once, a package's `__init__` only where it names that."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known or {node.module, f"{node.module}.__init__"} & known
    return found


@pytest.mark.parametrize("path", [p for _, p in modules()], ids=lambda p: p.name)
def test_no_backend_is_spoken_to_but_through_the_contract(path: Path) -> None:
    """Who knows which batch system it is speaks to that one only: a switch, however it is spelt."""
    for backend in ("slurm", "local"):
        home = f"vmcjob.scheduler.{backend}"
        is_at_home = _dotted(path).startswith((home, "vmcjob.scheduler.__init__"))
        assert is_at_home or not [name for name in imports(path) if name.startswith(home)]
    assert "job_name is" not in path.read_text("utf-8")


def test_a_notebook_pays_for_what_it_uses() -> None:
    """`import vmcjob` is a moment, and no door of it is missing."""
    program = "import sys, vmcjob; print(*sys.modules); vmcjob.open_run; print(dir(vmcjob))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, names = done.stdout.splitlines()
    ours = {name for name in loaded.split() if name.startswith("vmcjob")}
    assert ours == {"vmcjob", "vmcjob.version"}
    assert not {"jax", "numpy", "zarr", "xarray", "pandas"} & set(loaded.split())
    assert "open_runs" in names


LIGHT = ("runs.status", "scheduler", "supervisor", "store.peek", "scheduler.prune")


@pytest.mark.parametrize("room", LIGHT)
def test_login_nodes_import_nothing_heavy(room: str) -> None:
    """Whatever a room imports, and what that imports: JAX, NumPy and Zarr take seconds."""
    program = f"import sys, vmcjob.{room}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    assert not {"jax", "numpy", "zarr", "submitit", "rich"} & set(loaded.stdout.split())


@pytest.mark.parametrize("path", [p for _, p in modules()], ids=lambda p: p.name)
def test_only_the_store_knows_the_files_of_zarr(path: Path) -> None:
    assert "store" in path.parts or "zarr.json" not in path.read_text("utf-8")


MAX_LINES, MAX_FUNCTION = 300, 40


@pytest.mark.parametrize("path", [p for _, p in modules()], ids=lambda p: p.name)
def test_files_can_be_read_in_a_sitting(path: Path) -> None:
    """A longer file is two nouns."""
    assert len(path.read_text("utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", [p for _, p in modules()], ids=lambda p: p.name)
def test_functions_fit_on_a_screen(path: Path) -> None:
    """Their docstrings apart, which are to be as long as they need."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            has_words = ast.get_docstring(node) is not None
            words = (first.end_lineno or 0) - first.lineno + 1 if has_words else 0
            length = (node.end_lineno or 0) - node.lineno + 1 - words
            assert length <= MAX_FUNCTION, f"{path.name}: {node.name} has {length} lines"


def test_every_room_of_the_plan_exists() -> None:
    """The table above describes this house, not a planned one."""
    assert {room for room, _ in modules()} - DOORS == set(ROOMS)


def test_the_page_on_architecture_shows_the_rooms_and_arrows_of_this_table() -> None:
    """A room that is added, moved or given a new import must be changed on the page, too."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    shown = {room: set(re.findall(r"`(\w+)`", arrows)) for room, _, arrows in rows}
    differing = {room for room in shown | ROOMS if shown.get(room) != ROOMS.get(room)}
    assert not differing, f"docs/architecture.md: change the lines of {sorted(differing)}"
    assert len(rows) == len(shown), "a room is listed twice"


def test_the_story_on_the_page_names_files_that_exist() -> None:
    """Ten numbered sentences, each of which leads a reader to a file."""
    story = re.findall(r"^\d+\. .*(?:\n {3}.*)*", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(story) == 10
    for sentence in story:
        files = re.findall(r"`(vmcjob/[\w/]+\.py)`", sentence)
        assert files, sentence
        assert all((PACKAGE.parent / file).is_file() for file in files), sentence
