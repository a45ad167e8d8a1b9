"""The calibration of `vmcjob estimate` takes real steps."""

import io
import json

import jax

from vmcjob.protocol import JAX_CACHE
from vmcjob.run import calibration
from vmcjob.spec import dump_spec, parse_spec

SPEC = """
name = "h"
system.atoms = [["H", 0.0, 0.0, 0.0]]
sampler = { walkers = 8, steps = 1, warmup = 0 }
ansatz = { kind = "ferminet", layers = 1, determinants = 1, one_electron_width = 4 }
optimizer = { kind = "adam" }
train.steps = 0
evaluate = { steps = 5, warmup = 2, observables = ["forces"], observe_every = 5 }
"""


def test_each_phase_is_timed_and_its_memory_is_told(monkeypatch, capsys, tmp_path) -> None:
    """All phases that cost time are measured, by their real programs, which need memory.

    Among them the warm-up of evaluation, as parameters respond to forces in it.

    Pretraining counts as training, so training is measured although the spec has none.
    """
    (point,) = parse_spec(SPEC, "h.toml").points
    assert point.spec.pretrain.steps > 0
    monkeypatch.setenv(JAX_CACHE, str(tmp_path))  # nothing of the user's is touched
    monkeypatch.setattr("sys.stdin", io.StringIO(dump_spec(point.spec)))
    assert calibration.main(0.5) == 0
    machine, *phases = map(json.loads, capsys.readouterr().out.splitlines())
    assert machine["kind"] == "Machine"
    assert (machine["n_devices"], machine["memory_bytes"] > 0) == (jax.device_count(), True)
    assert [found["phase"] for found in phases] == [*("warmup", "train", "equilibrate", "evaluate")]
    for found in phases:
        assert 0 < found["step_s"] <= found["compile_s"] + 60
        assert found["n_steps"] >= 1
        assert found["program_bytes"] > 8 * 3 * 4  # at least the walkers, in float32


def test_a_spec_that_this_machine_cannot_run_has_a_sentence(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('name = "h"\n'))
    assert calibration.main(0.5) == 2
    assert "system" in capsys.readouterr().err
