"""The line that says how far long work has come."""

import sys

import pytest

from vmcjob.cli import progress
from vmcjob.cli.progress import Progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is one, and nobody has patience."""
    monkeypatch.setattr(progress, "can_redraw", lambda stream: stream is sys.stderr)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)


def test_a_terminal_sees_how_far_it_is_and_nothing_in_the_end(terminal, capsys):
    """Standard output has data only. What erases a line, click lets through to terminals alone."""
    assert list(Progress("reading results", 3).over("abc")) == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("\rreading results: 1 of 3, 0 s left\r")
    assert shown.err.endswith("\r")


def test_the_line_goes_when_work_is_interrupted(terminal, capsys):
    items = Progress("reading results", 3).over("abc")
    next(items)
    assert capsys.readouterr().err.endswith("1 of 3, 0 s left\r")
    items.close()
    assert capsys.readouterr().err == "\r"


def test_work_that_is_soon_done_is_not_talked_about(terminal, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    assert list(Progress("reading results", 3).over("abc")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_a_file_or_a_pipe_gets_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert list(Progress("reading results", 3).over("abc")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
