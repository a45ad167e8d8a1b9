"""Private names of libraries that vmcjob uses: all of them, in one list.

A release may rename or remove such a name without notice. Here this fails first, with its name.
"""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from vmcjob.vmc.kfac_layers import KfacUnavailableError, load

PACKAGE = Path(__file__).parents[1] / "vmcjob"
MODULES = {
    "jax._src.distributed": {"vmc/ranks.py"},  # whether other processes have been joined
    "kfac_jax._src": {"vmc/kfac_layers.py"},  # patterns of layers, and a repair for newer JAX
    "zarr.core.buffer": {"store/durable.py"},  # the type of a store's bytes, in a signature
    "jax.extend.core": {  # undocumented in part: equations and literals of a jaxpr
        *("fwdlap/api.py", "fwdlap/calls.py", "fwdlap/chunks.py", "fwdlap/interpreter.py"),
        "vmc/layers.py",
    },
}
"""Modules that are no public interface, and the files that import from them."""
NAMES = [
    ("jax._src.distributed", "global_state"),
    ("kfac_jax._src.tag_graph_matcher", "eval_jaxpr_eqn"),
    ("kfac_jax._src.tag_graph_matcher", "DEFAULT_GRAPH_PATTERNS"),
    ("submitit.slurm.slurm", "SlurmExecutor._get_job_id_from_submission_command"),
    ("submitit.slurm.slurm", "_shlex_join"),
    ("submitit.slurm.slurm", "_make_sbatch_string"),
    ("submitit.core._submit", "submitit_main"),
    ("zarr.core.buffer", "Buffer"),
    ("zarr.storage", "LocalStore._check_writable"),
    ("jax.extend.source_info_util", "user_context"),
]
"""Module and name of all that is used."""


def is_private(module: str) -> bool:
    """Whether a library does not offer a module to others."""
    return module in MODULES or any(part.startswith("_") for part in module.split("."))


def imported(path: Path) -> set[str]:
    """The modules from which a file imports, and modules that it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            found.add(node.module)
    return found


def test_no_other_private_module_is_imported() -> None:
    """A new one would break with a library's next release, and nobody would know where."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for module in imported(path):
            if is_private(module) and not module.startswith("vmcjob."):
                found.setdefault(module, set()).add(path.relative_to(PACKAGE).as_posix())
    assert found == MODULES


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_a_private_name_is_still_there(module: str, name: str) -> None:
    """Renamed by a release, it would fail in the middle of a submission or a training."""
    if module.startswith("kfac_jax"):
        try:
            load()
        except KfacUnavailableError as error:  # newer JAX than kfac-jax knows
            pytest.skip(str(error))
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None
