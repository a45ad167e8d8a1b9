"""Which of a run's processes one is: said in options, refused in sentences."""

import pytest

from vmcjob.errors import UsageError
from vmcjob.protocol.rank import ALONE, Rank, port_of


def test_a_process_without_others_says_nothing_about_ranks():
    assert ALONE.options() == ()
    assert ALONE.is_first
    assert ALONE.is_alone


def test_a_rank_names_itself_all_and_where_they_meet():
    rank = Rank(1, 2, "n1:61452")
    assert rank.options() == ("--rank", "1", "--ranks", "2", "--coordinator", "n1:61452")
    assert not rank.is_first
    assert not rank.is_alone


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        ((2, 2, "n1:61452"), "--rank 2: expected less than --ranks, which is 2"),
        ((0, 2, None), "--coordinator: expected HOST:PORT, where rank 0 listens, got None"),
        ((0, 2, "n1"), "--coordinator: expected HOST:PORT, where rank 0 listens, got n1"),
    ],
)
def test_what_cannot_be_a_rank_is_refused(rank, words):
    with pytest.raises(UsageError, match=words):
        Rank(*rank)


def test_jobs_on_the_same_machine_have_ports_of_their_own():
    """Those of an array have consecutive ids."""
    ports = [port_of(str(job_id)) for job_id in range(100_000, 101_000)]
    assert len(set(ports)) == 1000
    assert all(61440 <= port < 65536 for port in ports)
