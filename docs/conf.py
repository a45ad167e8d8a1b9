"""The website of vmcjob: README has the command that builds it, without a network."""

import sys
from pathlib import Path

from vmcjob import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "vmcjob"
author = "The vmcjob developers"
project_copyright = "2026, The vmcjob developers"
version = release = __version__

extensions = ["generated", "myst_parser", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_footnote_sort = False
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = f"vmcjob {version}"
html_static_path = ["_static"]
html_copy_source = False
html_css_files = ["vmcjob.css"]
html_show_sourcelink = False
smartquotes = False
LONE_PAGES = ("first-minutes", "troubleshooting", "theory", "observables", "benchmarks")
LONE_PAGES += ("comparison", "glossary", "extending", "architecture", "changelog", "citing")
html_sidebars = {name: [] for name in ("index", *LONE_PAGES)}  # they have no section to navigate
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "show_nav_level": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
