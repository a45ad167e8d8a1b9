"""What several runs say together: the error of their mean is smaller than the error of each."""

from collections.abc import Iterator, Sequence

import numpy as np

from vmcjob.stats import Estimate
from vmcjob.verdict.extrapolation import Extrapolation
from vmcjob.verdict.findings import CERTAIN, in_words
from vmcjob.verdict.judgement import ALONE, MAX_LEFT, MAX_PER_LEFT, Judgement, Together
from vmcjob.verdict.spin import NOT_MEASURED, pool_spins


def judge_together(
    pooled: Estimate, found: Sequence[Judgement], hartree_fock: float | None
) -> Together:
    """Judge the mean of several runs by the limits of one run, and by its own error.

    Args:
        pooled: the mean energy.
        found: of each run; where one has such a reason by itself, nothing is added.
        hartree_fock: an energy that any trained state should be below, hartree.
    """
    if len(found) < 2:
        return ALONE
    has_findings = any(one.findings for one in found)
    of_spin = "" if has_findings else _finding_of_spin(found)
    findings = () if has_findings else _findings(pooled, hartree_fock)
    unsettled = () if any(one.unsettled for one in found) else _unsettled(pooled, found)
    return Together((*findings, *filter(None, [of_spin])), tuple(unsettled), bool(of_spin))


def _finding_of_spin(found: Sequence[Judgement]) -> str:
    """The sentence about a mean S² that is another one; empty if it is not."""
    finding = pool_spins([one.spin for one in found]).finding
    return f"of all runs, {finding}" if finding else ""


def _findings(pooled: Estimate, hartree_fock: float | None) -> Iterator[str]:
    if hartree_fock is not None and pooled.mean - hartree_fock > CERTAIN * pooled.error:
        yield f"the mean lies {in_words(pooled.mean - hartree_fock)} above Hartree-Fock"


def _unsettled(pooled: Estimate, found: Sequence[Judgement]) -> Iterator[str]:
    """Much is left, on average; stores of before S² are not judged any stricter than then."""
    if any(NOT_MEASURED in one.notes for one in found):
        return
    most, noise = np.array([_most_left(one.extrapolation) for one in found]).T
    perhaps = float(np.mean(most) + np.hypot.reduce(noise) / len(found))
    if perhaps > max(MAX_LEFT, CERTAIN * pooled.error):
        yield f"perhaps {in_words(perhaps, 2)} are left to gain by training, on average"


def _most_left(line: Extrapolation) -> tuple[float, float]:
    """What a training may have left, in hartree, and its noise; a guess counts as it is."""
    if line.left is None:
        return line.guess, 0.0
    return MAX_PER_LEFT * line.left, line.left_noise
