"""The shipped jobs, submitted as a user does, against energies of the literature."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]

# Of the observables that some jobs measure: what is exact, and how near to it they must come.
# He: T = −E by the virial theorem.
OBSERVED = {
    "h": {"r2": (3.0, 0.02)},
    "he": {"kinetic": (2.903724, 0.01), "virial": (2.0, 0.01)},
}


def vmcjob(*arguments: str, runs: Path) -> subprocess.CompletedProcess[str]:
    """The command as typed, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "VMCJOB_RUNS": str(runs)}
    environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}  # steps take longer than compiling
    command = [sys.executable, "-m", "vmcjob", *arguments]
    return subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=1100
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("job", "exact", "largest_miss", "small"),
    [
        ("h", -0.5, 1e-4, 1e-4),  # analytic
        pytest.param("he", -2.903724, 2e-3, 2e-4, marks=pytest.mark.full_matrix),  # Pekeris 1959
        pytest.param(  # Kołos and Wolniewicz 1968, R = 1.4 bohr
            "h2", -1.174476, 1e-3, 2e-4, marks=pytest.mark.full_matrix
        ),
    ],
)
def test_a_shipped_job_finds_the_exact_energy(
    job: str, exact: float, largest_miss: float, small: float, tmp_path: Path
) -> None:
    """Near the exact energy, and honestly so: within three of its own error bars, or very near.

    The variational bound holds for the mean, so an energy far below is as wrong as one far above.
    """
    submitted = vmcjob("submit", f"jobs/{job}.toml", "--local", "--follow", runs=tmp_path)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    aggregated = vmcjob("aggregate", "--json", "--observables", runs=tmp_path)
    document = json.loads(aggregated.stdout)
    (row,) = document["rows"]
    miss = abs(row["energy"] - exact)
    assert miss <= largest_miss
    assert miss <= max(3 * row["error"], small)
    assert row["error"] <= largest_miss
    assert row["converged"]
    assert aggregated.returncode == 0
    assert_observed(job, {one["name"]: one for one in document["observables"]})


def assert_observed(job: str, found: dict[str, Any]) -> None:
    """Plain results within three of their error bars, those with control variates near enough.

    These have error bars so small that what is left is the wave function's own.
    """
    for name, (exact, tolerance) in OBSERVED.get(job, {}).items():
        plain, better = found[name], found[f"{name}_controlled"]
        assert abs(plain["mean"] - exact) <= 3 * plain["error"][0]
        assert abs(better["mean"] - exact) <= tolerance
        assert 3 * better["error"][0] <= tolerance
    if job == "he":
        assert sum(found["density_radial"]["mean"]) == pytest.approx(2.0, abs=1e-6)
