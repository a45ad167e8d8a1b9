"""Pictures of runs: how they converged, how sure they are, observables, curves along a sweep,
paths of relaxations.

Data comes as `RunSeries`, read from stores by `read`; every figure is a function of it. Needs
matplotlib, and no display.
"""

from matplotlib.figure import Figure

from vmcjob.plot.curve import CurvePoint, draw_curve, draw_curves
from vmcjob.plot.observables import draw_observables
from vmcjob.plot.overview import draw_comparison, draw_overview
from vmcjob.plot.path import PathPoint, draw_path
from vmcjob.plot.series import RunSeries, read
from vmcjob.plot.style import FORMATS, render, to_svg

__all__ = [
    "FORMATS",
    "CurvePoint",
    "Figure",
    "PathPoint",
    "RunSeries",
    "draw_comparison",
    "draw_curve",
    "draw_curves",
    "draw_observables",
    "draw_overview",
    "draw_path",
    "read",
    "render",
    "to_svg",
]
