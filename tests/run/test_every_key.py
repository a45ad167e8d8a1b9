"""No key that decides numbers is accepted and forgotten on the way to the calculation."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator

import pytest

from vmcjob.document import keys_of, variants_of
from vmcjob.run.calculation import build, configure_jax, make_system
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.spec.science import is_science
from vmcjob.vmc.hartree_fock import solve

# What the phases are made of, and what is asked of Hartree–Fock, is read by the worker as it runs.
READ_LATER = {
    "sampler.warmup",
    "train.start_from",
    "train.until",
    "evaluate.steps",
    "evaluate.warmup",
    "evaluate.target_error",
    "evaluate.target_of",  # settled where seeds are shared out
}


def tables() -> Iterator[tuple[str, type]]:
    for name, key in keys_of(JobSpec).items():
        if key.is_table:
            parts = variants_of(key.kind.type).values() or (key.kind.type,)
            yield from ((name, part) for part in parts)


@pytest.fixture
def keys_read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Fills with every key that our own code asks a spec for, one by one."""
    found: set[str] = set()

    def watch(name: str, table: type) -> None:
        fields = {field.name for field in dataclasses.fields(table)}

        def read(self: object, attribute: str) -> object:
            frame = sys._getframe(1)
            caller, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            is_ours = caller.startswith("vmcjob.") and function not in ("__hash__", "__eq__")
            if attribute in fields and is_ours:
                found.add(f"{name}.{attribute}")
            return object.__getattribute__(self, attribute)

        monkeypatch.setattr(table, "__getattribute__", read)

    for name, table in tables():
        watch(name, table)
    return found


def make_spec(ansatz: str, optimizer: str) -> JobSpec:
    text = f"""name = "h2"
ansatz.kind = "{ansatz}"
optimizer.kind = "{optimizer}"
sampler.walkers = 8
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]
"""
    return parse_spec(text, "h2.toml").points[0].spec


def test_every_key_of_science_is_asked_for(keys_read) -> None:
    ansatze = ["ferminet", "psiformer", "slater-jastrow"]
    optimizers = ["spring", "kfac", "sr", "minsr", "adam", "lamb"]
    kinds = itertools.zip_longest(ansatze, optimizers, fillvalue="ferminet")
    specs = [make_spec(*both) for both in kinds]
    start = solve(make_system(specs[0].system), "sto-3g")
    keys_read.clear()  # what reading a spec has asked for
    for spec in specs:
        configure_jax(spec.numerics)
        assert build(spec, start).vmc.optimizer
    declared = {
        f"{name}.{field.name}"
        for name, table in tables()
        for field in dataclasses.fields(table)
        if is_science((name,)) and is_science((name, field.name)) and field.name != "kind"
    }
    assert declared - keys_read == READ_LATER
