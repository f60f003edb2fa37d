"""A pytest plugin for interpreters.py: what fails because a package is absent is skipped."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator
from typing import TypeVar

import pytest

_ABSENT = re.compile(r"no module (?:named ')?(\w+)", re.IGNORECASE)
# What interpreters.py does not install. Anything else that is absent is a fault: a module that
# later Pythons no longer have, or a package that pyproject.toml does not declare.
_OPTIONAL = {
    "accelerate",
    "lightning",
    "optuna",
    "pandas",
    "pdoc",
    "pyarrow",
    "scipy",
    "sklearn",
    "tensorboard",
    "tokenizers",
    "torch",
    "transformers",
}
Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports it."""
    return skipped((yield), str(collector.path))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs it, itself or in a process that it starts."""
    return skipped((yield), str(item.path))


def skipped(report: Report, path: str) -> Report:
    """Return the report, of a skipped test if an optional package is what it lacks."""
    if report.failed:
        for name in _ABSENT.findall(report.longreprtext):
            if name in _OPTIONAL and importlib.util.find_spec(name) is None:
                report.outcome, report.longrepr = "skipped", (path, 0, f"no {name}")
                break
    return report
