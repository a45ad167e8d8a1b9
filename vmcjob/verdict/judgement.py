"""From a run's own numbers to its verdict: of its statistics, of its state and of its training."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from vmcjob.stats import DISAGREE, MIN_INDEPENDENT, Estimate, Walkers, standard_error
from vmcjob.verdict.evidence import doubt_of_walkers
from vmcjob.verdict.extrapolation import Extrapolation, Point, extrapolate
from vmcjob.verdict.findings import (
    CERTAIN,
    MAX_FALL,
    Series,
    Trend,
    findings,
    in_words,
    last_fall,
    trend,
)
from vmcjob.verdict.spin import NOT_MEASURED, Spin, Spins, judge_spin

VERDICTS = CONVERGED, UNSETTLED, NOT_YET, SUSPECT = "converged", "unsettled", "not yet", "suspect"
"""From good to bad."""
MAX_LEFT = MAX_FALL
"""In hartree: what a training may have left to gain, if that is not within the error."""
MAX_PER_LEFT = 2.0
"""What may be left, over the estimate of what is left: the estimate holds within this factor."""
MAX_NOISE = 15.0
"""Errors of the energy within which a training's end is known to be at rest, where the energies of
its steps scatter too much to tell 1.6 mHa. A right run of as many steps of training as of
evaluation knows it within 12, as a line through the last fifth of the training has that error."""
MAX_UNKNOWN = 5e-3
"""In hartree, about three times 1.6 mHa: a training that may still fall by more is not called at
rest, however large the error of the energy is."""
MAX_DISTANCE = 10.0
"""In bohr: the mean distance of the outermost electron from its nearest nucleus. Bound atoms and
anions of the first three rows are below; an electron that nothing binds drifts away."""
N_PARTS = 10
"""Parts of an evaluation. The variance of a usual part is the median of their means."""
MAX_EXCITATION = 4.0
"""How far states that ψ contains lie above the ground state, at most, in energies of the run."""
MAX_PER_MEDIAN = 4.0
"""The mean of the variance over its median, where a median speaks for all walkers."""
ERROR_OF_MEDIAN = 1.2533  # of a normal distribution, in standard errors of its mean
MIN_TRAINING = 500
"""Steps that are worth training on for."""
MAX_NAMED = 4
"""Runs that a command names one by one."""


class About(NamedTuple):
    """What a judgement needs beside the run's series."""

    hartree_fock: float | None = None  # hartree
    n_walkers: int | None = None
    spins: Spins | None = None
    walkers: Walkers | None = None  # compared with each other; None of an earlier release
    notes: tuple[str, ...] = ()  # about other measurements, which do not count
    unread: str = ""  # why its spec is not known, so that not all can be judged


class Judgement(NamedTuple):
    """What one run's own numbers say of its energy."""

    findings: tuple[str, ...]  # against its state
    unsettled: tuple[str, ...]  # why its training may go on
    doubts: tuple[str, ...]  # what more evaluation would tell
    notes: tuple[str, ...]  # what is not known, and does not count
    spin: Spin
    trend: Trend | None
    extrapolation: Extrapolation
    n_train: int


class Together(NamedTuple):
    """Reasons against the mean of several runs that no run shows by itself."""

    findings: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    has_other_spin: bool = False


ALONE = Together()
"""Of a single run."""


def judge(train: Series, evaluate: Series, energy: Estimate, about: About) -> Judgement:
    """Judge an evaluated run.

    A store of an earlier release has no column "s2": its training is not judged any stricter than
    it was then, so that its verdict stays.
    """
    given = about.hartree_fock, about.n_walkers, about.walkers
    found = findings(train, evaluate, energy, *given)
    spin = judge_spin(evaluate.get("s2"), about.spins)
    end = end_of(evaluate, energy)
    line = extrapolate(train["energy"], train["variance"], end)
    is_old = "s2" not in evaluate
    doubts = [about.unread, "" if spin.doubt == NOT_MEASURED else spin.doubt]
    if not found:
        doubts.append(doubt_of_walkers(about.walkers, energy))
    unsettled = tuple(_unsettled(train["energy"], energy, line))
    unsettled = unsettled or tuple(_much_variance(evaluate["variance"], energy))
    return Judgement(
        findings=(*found, *filter(None, [spin.finding]), *_unbound(evaluate)),
        unsettled=() if is_old else unsettled,
        doubts=tuple(filter(None, doubts)),
        notes=(*((NOT_MEASURED,) if spin.doubt == NOT_MEASURED else ()), *about.notes),
        spin=spin,
        trend=trend(train["energy"]),
        extrapolation=line,
        n_train=len(train["energy"]),
    )


def end_of(evaluate: Series, energy: Estimate) -> Point:
    """The evaluation as a point of the line of energy and variance."""
    variance = evaluate["variance"]
    error = ERROR_OF_MEDIAN * standard_error(variance)
    return Point(float(np.median(variance)), error, energy.mean, energy.error)


def _unbound(evaluate: Series) -> Iterator[str]:
    """An electron that has gone away from all nuclei."""
    rows = evaluate.get("outermost", np.zeros(0))
    rows = rows[np.isfinite(rows)]
    if len(rows) and (distance := float(np.median(rows))) > MAX_DISTANCE:
        yield f"an electron is not bound: {distance:.0f} bohr from the nearest nucleus on average"


def _much_variance(variance: np.ndarray, energy: Estimate) -> Iterator[str]:
    """A variance, most of it at few walkers, that leaves more to gain than may be left.

    The median of the variance, and so what is left by it, says nothing of these walkers. With a
    weight p of states that lie D higher, p D is left and the variance is p D². D is taken as
    `MAX_EXCITATION` times the energy. The mean is that of a usual tenth of the steps, so that
    rare steps do not count.
    """
    tenths = np.array_split(variance, max(1, min(N_PARTS, len(variance))))
    usual = float(np.median([np.mean(part) for part in tenths]))
    most = MAX_EXCITATION * abs(energy.mean) * max(MAX_LEFT, CERTAIN * energy.error)
    if usual > max(most, MAX_PER_MEDIAN * float(np.median(variance))):
        yield (
            f"its variance of {usual:.2g} hartree², most of it at few walkers, says that more is "
            "left to gain by training"
        )


def _unsettled(energies: np.ndarray, energy: Estimate, line: Extrapolation) -> Iterator[str]:
    """Why a training should go on: much is left, or nobody knows whether it has come to rest."""
    limit = max(MAX_LEFT, CERTAIN * energy.error)
    if not len(energies):
        yield "it was not trained, so that what is left to gain is not known"
        return
    if line.left is not None:
        most = MAX_PER_LEFT * line.left + line.left_noise
        if most > limit:
            words = f"some {in_words(line.left, 2)} are left to gain by training"
            yield f"{words}, perhaps {in_words(most, 2)}"
        return
    if line.guess > limit:  # the best that is known, however uncertain
        words = f"some {in_words(line.guess, 2)} are left to gain by training"
        yield f"{words}, as far as noise lets tell"
        return
    _, error = last_fall(energies)
    if not CERTAIN * error <= min(MAX_UNKNOWN, max(MAX_LEFT, MAX_NOISE * energy.error)):
        if not np.isfinite(error):
            yield "nobody can tell whether its training has come to rest"
            return
        within = in_words(CERTAIN * error, 2)
        yield f"its training is known only within {within} to have come to rest"


def verdict_of(pooled: Estimate, found: Sequence[Judgement], together: Together = ALONE) -> str:
    """The one word for the energy of one run, or of several that are pooled."""
    judged = [*found, together]
    if any(one.findings for one in judged):
        return SUSPECT
    if not pooled.converged or any(one.doubts for one in found):
        return NOT_YET
    return UNSETTLED if any(one.unsettled for one in judged) else CONVERGED


def explain(
    pooled: Estimate,
    found: Sequence[Judgement],
    seeds: Sequence[int],
    runs: Sequence[str],
    together: Together = ALONE,
) -> str:
    """Why an energy is not called converged, what is not known, and a command that helps.

    Args:
        pooled: the energy.
        found: of each run.
        seeds: of each run; they are named where there are several.
        runs: how the command names the runs.
        together: of the mean of several runs.
    """
    reasons = by_run(seeds, [(*one.findings, *one.unsettled, *one.doubts) for one in found])
    doubts = [pooled.why] if pooled.why else []
    notes = _notes(seeds, found)
    why = "; ".join([*reasons, *together.findings, *together.unsettled, *doubts, *notes])
    is_good = verdict_of(pooled, found, together) == CONVERGED
    return why if is_good else f"{why}; {_advice(pooled, found, runs, together)}"


def _notes(seeds: Sequence[int], found: Sequence[Judgement]) -> Iterator[str]:
    """The notes about all runs once, then the others with their seeds."""
    every = [note for note in found[0].notes if all(note in one.notes for one in found)]
    yield from every
    yield from by_run(seeds, [[note for note in one.notes if note not in every] for one in found])


def by_run(seeds: Sequence[int], sentences: Sequence[Sequence[str]]) -> Iterator[str]:
    """The sentences about each run, with its seed where there are several."""
    for seed, own in zip(seeds, sentences, strict=True):
        for words in own:
            yield words if len(seeds) == 1 else f"seed {seed}: {words}"


def resume_options(pooled: Estimate, found: Sequence[Judgement], together: Together = ALONE) -> str:
    """The options with which `vmcjob resume` makes an energy better, like "--more-steps 1000".

    They are for all runs. Empty for a converged energy, and where another command helps.
    """
    verdict = verdict_of(pooled, found, together)
    longer = _longer(found)
    if verdict == CONVERGED:
        return ""
    if verdict == SUSPECT:
        is_short = any("its training" in words for one in found for words in one.findings)
        return longer if is_short and not _has_other_spin(found, together) else ""
    if verdict == UNSETTLED or any(one.unsettled for one in [*found, together]):
        return longer
    if _disagree(pooled, found):
        return ""
    n = pooled.n // max(1, len(found))
    missing = MIN_INDEPENDENT / max(1.0, pooled.n_eff) - 1.0
    return f"--more-steps {max(n, int(np.ceil(1.2 * n * missing)))}"


def _advice(
    pooled: Estimate, found: Sequence[Judgement], runs: Sequence[str], together: Together
) -> str:
    """A command that helps against the first of the reasons."""
    if options := resume_options(pooled, found, together):
        goes_on = "trains on" if "training" in options else "goes on"
        return f"vmcjob resume {' '.join(runs[:MAX_NAMED])} {options} {goes_on}"
    if verdict_of(pooled, found, together) == SUSPECT:
        if _has_other_spin(found, together):
            return "vmcjob keys pretrain shows other starts, whose state may have the right spin"
        return f"vmcjob plot {runs[0]} shows where"
    return f"vmcjob resume {_highest(found, runs)} {_longer(found)} trains the highest on"


def _longer(found: Sequence[Judgement]) -> str:
    """The option that trains runs on for as long again."""
    return f"--more-training {max(MIN_TRAINING, *(one.n_train for one in found))}"


def _has_other_spin(found: Sequence[Judgement], together: Together) -> bool:
    return together.has_other_spin or any(bool(one.spin.finding) for one in found)


def _disagree(pooled: Estimate, found: Sequence[Judgement]) -> bool:
    """Whether the runs' energies differ, and nothing else is in doubt."""
    return pooled.why.startswith(DISAGREE) and not any(one.doubts for one in found)


def _highest(found: Sequence[Judgement], runs: Sequence[str]) -> str:
    """The run of the highest energy."""
    energies = [one.extrapolation.end.y if one.extrapolation.end else -np.inf for one in found]
    return runs[int(np.argmax(energies))]
