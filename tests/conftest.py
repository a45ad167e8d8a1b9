"""Fixtures that several rooms share."""

import os
from collections.abc import Iterator

import jax
import pytest

from tests.runs import Programs

# JAX's own derivatives of determinants, which tests compare with, run batches of triangular solves;
# with fewer threads than such batches, XLA:CPU deadlocks. XLA sizes its pool by this variable.
os.environ.setdefault("NPROC", "8")


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for one test: comparisons with exact formulas need it."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)
