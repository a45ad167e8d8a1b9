"""One page of HTML about some runs, with everything needed to judge them; needs no network.

The content comes as values, and nothing is read here; `vmcjob.plot` draws the pictures.
"""

from vmcjob.results.report.content import Content, CurveFacts, PageTable, Picture, RunFacts
from vmcjob.results.report.page import render

__all__ = ["Content", "CurveFacts", "PageTable", "Picture", "RunFacts", "render"]
