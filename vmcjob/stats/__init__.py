"""The mean of a correlated series and its error: blocking, autocorrelation time, pooling."""

from vmcjob.stats.correlation import (
    blocking_curve,
    normalized_autocorrelation,
    student_factor,
)
from vmcjob.stats.mean import (
    MIN_INDEPENDENT,
    Estimate,
    candidate_errors,
    estimate,
    estimate_function,
    pseudovalues,
    standard_error,
    standard_errors,
)
from vmcjob.stats.pooling import DISAGREE, pool, scatter
from vmcjob.stats.walkers import Walkers, compare_walkers

__all__ = [
    "DISAGREE",
    "MIN_INDEPENDENT",
    "Estimate",
    "Walkers",
    "blocking_curve",
    "candidate_errors",
    "compare_walkers",
    "estimate",
    "estimate_function",
    "normalized_autocorrelation",
    "pool",
    "pseudovalues",
    "scatter",
    "standard_error",
    "standard_errors",
    "student_factor",
]
