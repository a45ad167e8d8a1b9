"""Cases of tests that run with `--full-matrix` only."""

from typing import Any

import pytest
from _pytest.mark import ParameterSet


def rest(*cases: Any) -> list[ParameterSet]:
    """The further cases of a test: the ones beside them guard the same, and run always.

    A tuple has a value for each of several parameters.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full_matrix)
        for case in cases
    ]
