"""The mean of a correlated series and its honest error: blocking, autocorrelation time, pooling."""

from vmcjob.stats.correlation import (
    blocking_curve,
    blocking_error,
    normalized_autocorrelation,
    student_factor,
    window_error,
)
from vmcjob.stats.mean import (
    MIN_INDEPENDENT,
    Estimate,
    estimate,
    estimate_function,
    standard_error,
    standard_errors,
)
from vmcjob.stats.pooling import pool, scatter

__all__ = [
    "MIN_INDEPENDENT",
    "Estimate",
    "blocking_curve",
    "blocking_error",
    "estimate",
    "estimate_function",
    "normalized_autocorrelation",
    "pool",
    "scatter",
    "standard_error",
    "standard_errors",
    "student_factor",
    "window_error",
]
