"""What sbatch is told."""

from pathlib import Path

import pytest

from vmcjob.resources import Request
from vmcjob.scheduler.script import EARLY_S, Options
from vmcjob.site import Slurm
from vmcjob.spec import Resources


@pytest.mark.parametrize(
    ("time", "spare_s"),
    [
        ("00:04:00", 60.0),
        ("00:05:00", 75.0),
        ("00:06:00", 90.0),
        ("2-00:00:00", 90.0),
        ("00:01:00", 15.0),
    ],
)
def test_a_worker_is_asked_to_stop_by_us_before_slurm_warns_however_early(time, spare_s):
    """From four minutes on: in a shorter wall time, SLURM's may come first."""
    options = Options(Resources(), Request(time=time), Slurm())
    delay_s = options.parameters("h", Path("/runs"), 1)["signal_delay_s"]
    assert options.spare_s == spare_s
    assert delay_s >= 1  # SLURM takes 0 for none
    assert delay_s + EARLY_S <= max(spare_s, 1 + EARLY_S)
