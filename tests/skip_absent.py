"""A pytest plugin for interpreters.py: skips tests that fail because a package is missing."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator
from typing import TypeVar

import pytest

_ABSENT = re.compile(r"no module (?:named ')?(\w+)", re.IGNORECASE)
# Packages that interpreters.py does not install. Any other missing module is a fault: a module
# that later Pythons do not have, or a package that pyproject.toml does not declare.
_OPTIONAL = {
    "accelerate",
    "lightning",
    "optuna",
    "pandas",
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
    """Skip a module that imports a missing package."""
    return skipped((yield), str(collector.path))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs a missing package, itself or in a process that it starts."""
    return skipped((yield), str(item.path))


def skipped(report: Report, path: str) -> Report:
    """Return the report, as skipped if an optional package is missing."""
    if report.failed:
        for name in _ABSENT.findall(report.longreprtext):
            if name in _OPTIONAL and importlib.util.find_spec(name) is None:
                report.outcome, report.longrepr = "skipped", (path, 0, f"no {name}")
                break
    return report
