"""Data that leaves through standard output."""

import json
import math

import pytest

from vmcjob.cli.screen import put_json


def test_json_knows_no_numbers_that_are_not_finite(capsys):
    """A tau that could not be estimated is null; NaN would break every strict parser."""
    put_json({"tau": math.nan, "rows": [{"n_eff": math.inf}, (1.5, "x", True)]})
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document == {"tau": None, "rows": [{"n_eff": None}, [1.5, "x", True]]}
