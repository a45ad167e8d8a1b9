"""What a supervisor does when its worker has ended: a table of what happened and what follows."""

import signal
from itertools import product

import pytest

from vmcjob.protocol import DEADLINE, EXIT_CODES, STOP, STOPPED, WARNING
from vmcjob.protocol.batch import Fate
from vmcjob.rundir import Outcome
from vmcjob.supervisor.policy import (
    MAX_REFUSALS,
    Decision,
    Happened,
    NextStep,
    decide,
    has_to_ask,
    has_to_requeue,
    is_answered,
    is_cut_short,
    next_step,
)

KILLED, TERMINATED, STOPPED_BY = -signal.SIGKILL, -signal.SIGTERM, -STOP
FINISHED, FAILED, PREEMPTED = Outcome.FINISHED, Outcome.FAILED, Outcome.PREEMPTED
DIVERGED = Outcome.DIVERGED
TOO_SHORT = "the wall time ended before a single step was done; ask for more (-t)"
VANISHED = "stopped by SIGTERM, and its image with it; continues from its last commit"
BEFORE = "stopped by SIGTERM before it began; continues where it stopped"


@pytest.mark.parametrize(
    ("happened", "decision"),
    [
        # It ended by itself, and said so or could not.
        (Happened(0, FINISHED), Decision(0, is_lost=True)),
        (Happened(1, FAILED), Decision(1, is_lost=True)),
        (Happened(7, DIVERGED), Decision(7, is_lost=True)),
        (Happened(3), Decision(3, is_lost=True)),
        # It was killed: by a signal, or, as a container says it, with 128 more.
        (Happened(KILLED), Decision(9, is_lost=True)),
        (Happened(137), Decision(9, is_lost=True)),
        # A signal that came after its last word changes nothing of that.
        (Happened(TERMINATED, FINISHED), Decision(0, is_lost=True)),
        (Happened(TERMINATED, PREEMPTED, "SIGTERM"), Decision(STOPPED, goes_on=True)),
        (Happened(KILLED, FAILED), Decision(9, is_lost=True)),
        # It stopped at a checkpoint, because it was asked to.
        (Happened(STOPPED, PREEMPTED, DEADLINE), Decision(STOPPED, goes_on=True)),
        (Happened(STOPPED, PREEMPTED, "SIGURG"), Decision(STOPPED, goes_on=True)),
        # By whom nobody knows: whoever it was wants it to stay so.
        (Happened(STOPPED, PREEMPTED), Decision(STOPPED)),
        # It was asked before it could listen.
        (Happened(STOPPED_BY, None, "SIGTERM"), Decision(STOPPED, PREEMPTED, BEFORE, goes_on=True)),
        (Happened(128 + STOP, None, "SIGTERM"), Decision(STOPPED, PREEMPTED, BEFORE, goes_on=True)),
        (Happened(KILLED, None, "SIGTERM"), Decision(9, is_lost=True)),
        (Happened(TERMINATED), Decision(15, is_lost=True)),
        # SIGTERM went to its image too: files that vanish look like any other fault.
        *(
            (
                Happened(code, outcome, "SIGTERM", is_contained=True),
                Decision(STOPPED, PREEMPTED, VANISHED, goes_on=True),
            )
            for code, outcome in [(1, FAILED), (255, None), (-signal.SIGBUS, None)]
        ),
        (Happened(KILLED, None, "SIGTERM", is_contained=True), Decision(9, is_lost=True)),
        (Happened(1, FAILED, "SIGURG", is_contained=True), Decision(1, is_lost=True)),
        (Happened(1, FAILED, is_contained=True), Decision(1, is_lost=True)),
        (Happened(1, FAILED, "SIGTERM"), Decision(1, is_lost=True)),
        # A wall time too short for a step must not be tried for ever.
        (
            Happened(STOPPED, PREEMPTED, DEADLINE, has_moved=False),
            Decision(EXIT_CODES[FAILED], FAILED, TOO_SHORT),
        ),
        (
            Happened(STOPPED, PREEMPTED, "SIGURG", has_moved=False),
            Decision(STOPPED, goes_on=True),
        ),
        (
            Happened(STOPPED, PREEMPTED, DEADLINE, has_moved=False, is_cut_short=True),
            Decision(STOPPED, goes_on=True),
        ),
        # Its user has cancelled it.
        (Happened(STOPPED, PREEMPTED, DEADLINE, is_cancelled=True), Decision(STOPPED)),
        (
            Happened(STOPPED, PREEMPTED, DEADLINE, has_moved=False, is_cancelled=True),
            Decision(STOPPED),
        ),
        # Another rank took it down.
        (Happened(KILLED, lost_rank="rank 1 was lost"), Decision(9, FAILED, "rank 1 was lost")),
        (Happened(0, FINISHED, lost_rank="rank 1 was lost"), Decision(0, is_lost=True)),
    ],
)
def test_what_follows_from_an_end(happened: Happened, decision: Decision):
    assert decide(happened) == decision


CODES = [*range(256), *(-number for number in range(1, 65))]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_nothing_that_can_happen_has_no_answer_or_brings_back_what_has_ended(is_cancelled: bool):
    """Of all ends there are, only one at a checkpoint goes on, and of a cancelled run none does."""
    outcomes, reasons = [None, *Outcome], [None, DEADLINE, "SIGTERM", "SIGURG"]
    for code, outcome, reason in product(CODES, outcomes, reasons):
        found = decide(Happened(code, outcome, reason, is_cancelled=is_cancelled))
        assert 0 <= found.exit_code < 256
        assert not (found.goes_on and is_cancelled)
        assert not found.goes_on or found.exit_code == STOPPED
        assert not (found.is_lost and found.outcome)


def test_slurm_is_asked_only_where_its_signal_has_several_meanings():
    """And at a deadline, for a job that began to listen too late has missed that signal."""
    reasons = ("SIGTERM", "SIGURG", DEADLINE, None)
    assert [reason for reason in reasons if has_to_ask(reason)] == ["SIGTERM", DEADLINE]


@pytest.mark.parametrize("fate", Fate)
def test_a_job_asks_for_itself_where_it_would_not_come_back(fate: Fate):
    assert has_to_requeue(WARNING.name, fate)
    unasked = (Fate.RETURNING, Fate.CANCELLED)
    for reason in ("SIGTERM", DEADLINE):
        assert has_to_requeue(reason, fate) == (fate not in unasked)
    assert has_to_requeue("SIGINT", fate) == (fate in (Fate.PREEMPTED, Fate.LOST))


@pytest.mark.parametrize("fate", [None, *Fate])
def test_a_wall_time_was_too_short_only_if_all_of_it_was_given(fate: Fate | None):
    """Of a job that is preempted or cancelled before its first step, the time is over soon too."""
    assert is_cut_short(fate) == (fate in (Fate.PREEMPTED, Fate.RETURNING, Fate.CANCELLED))


@pytest.mark.parametrize("fate", [None, *Fate])
def test_a_requeue_is_asked_for_until_somebody_answers(fate: Fate | None):
    is_over = fate in (Fate.RETURNING, Fate.CANCELLED)
    assert is_answered(fate, 0) == is_over
    assert is_answered(fate, MAX_REFUSALS) == (fate is not None)


@pytest.mark.parametrize("fate", Fate)
def test_what_is_cancelled_or_comes_back_needs_nothing_more(fate: Fate):
    assert next_step(fate, is_cancelled=True) is NextStep.REST
    expected = {Fate.RETURNING: NextStep.REST, Fate.CANCELLED: NextStep.NOTE_CANCELLATION}
    assert next_step(fate, is_cancelled=False) is expected.get(fate, NextStep.RESUBMIT)
