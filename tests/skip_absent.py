"""A pytest plugin for interpreters.py: what fails because a package is absent is skipped."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator
from typing import TypeVar

import pytest

_ABSENT = re.compile(r"no module (?:named ')?(\w+)", re.IGNORECASE)
_OURS = ("det_jupyter", "determined", "tests")
Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports it."""
    return _skipped((yield), str(collector.path))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs it, itself or in a process that it starts."""
    return _skipped((yield), str(item.path))


def _skipped(report: Report, path: str) -> Report:
    if report.failed:
        for name in _ABSENT.findall(report.longreprtext):
            if name not in _OURS and importlib.util.find_spec(name) is None:
                report.outcome, report.longrepr = "skipped", (path, 0, f"no {name}")
                break
    return report
