"""One page about some runs, with all that it takes to judge them; it opens without a network.

What is on it comes as values, and nothing is read here; `vmcjob.plot` draws the pictures.
"""

from vmcjob.report.content import Content, CurveFacts, PageTable, Picture, RunFacts
from vmcjob.report.page import render

__all__ = ["Content", "CurveFacts", "PageTable", "Picture", "RunFacts", "render"]
