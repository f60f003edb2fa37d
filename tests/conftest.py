"""For all tests: the user's own det_jupyter is never used, and no process is left running."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import det_jupyter
from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host import paths
from tests import skips, waiting
from tests.homes import processes_below

JOURNEYS = "tests/lab/"
REAL_PARTS = ("tests/e2e/", "tests/integration/")
NO_BYTECODE = sys.dont_write_bytecode

# Masters of tests share no slots with those of users, or with each other.
os.environ["DET_JUPYTER_SHARED_FOLDER"] = "none"

# torch computes in one thread, in this process and in those that tests start: on cores that others
# use too, several threads spin until the last one has had its turn ([m] 10 instead of 0.4 s CPU
# for 600 batches).
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded, which conftests do as well

# Tests write GBs in minutes: forecasts of their disk would be in outputs that tests compare.
os.environ["DET_JUPYTER_DISK_FORECAST"] = "off"


def pytest_configure(config: pytest.Config) -> None:
    """Handle SIGINT and SIGHUP, which tests send, though shells and nohup may ignore them.

    Compile det_jupyter to bytecode, as tests start some hundred processes of it: where Python is
    configured to write no bytecode, each process would compile it ([m] 0.3 of the 1 s CPU in which
    a master starts).

    Do not collect garbage while pytest collects tests, as these stay ([m] 22 instead of 30 s CPU).

    Hide the grammar of IRIs that jsonschema compiles in each process that imports it, where
    rfc3987_syntax is installed ([m] 1.2 s CPU): no test checks an IRI.
    """
    gc.disable()
    sys.modules.setdefault("rfc3987_syntax", ModuleType("rfc3987_syntax"))
    sys.dont_write_bytecode = False  # until pytest_collection_finish
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(det_jupyter.__file__).parent, quiet=2)
    # Hypothesis's asserts are rewritten too, unless they are cached ([m] 2.3 s CPU in each
    # process).
    from hypothesis import settings

    # The duration of an example depends on the machine more than on the code. By hand each run
    # tries other examples, and CI the same each time: half as many.
    most = 50 if os.environ.get("CI") else 100
    settings.register_profile("det_jupyter", deadline=None, max_examples=most)
    settings.load_profile("det_jupyter")


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Make a test fail when its processes make no progress any more."""
    return waiting.set_timer(item, settings)


@pytest.hookimpl(optionalhook=True)  # mutants.py has no xdist
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers more than there are cores: all but unit tests mostly wait."""
    return min(5, (os.cpu_count() or 1) + 3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let test files of one room share a process when tests run in parallel."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.side_by_side import RoomsApart

    return RoomsApart(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make each of the parallel test processes begin at another file.

    Then a process finds modules that another one has compiled with rewritten asserts, and they do
    not all compile the same module at the same time ([m] 5 s CPU for all modules).
    """
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory):
        first = len(report.result) * int(worker["workerid"][2:]) // worker["workercount"]
        report.result[:] = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests in the same order in all processes, with the journeys first.

    The journeys are the longest work that a single process does.
    """
    items.sort(key=lambda item: (not item.nodeid.startswith(JOURNEYS), item.path.parts))


def pytest_collection_finish() -> None:
    """Exclude existing objects from garbage collection before the first test.

    Collect old objects less often than programs do: tests make many, and drop them at their end.
    """
    sys.dont_write_bytecode = NO_BYTECODE
    gc.freeze()
    gc.set_threshold(700, 10, 100)
    gc.enable()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send one report of each test that passes to the process that distributes tests.

    Its duration is that of setup, call and teardown. xdist sends a report of each, and two
    messages about their begin and end ([m] 1 ms CPU for a test).
    """
    if not hasattr(item.config, "workerinput"):
        return None
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    duration = sum(report.duration for report in reports)
    for report in reports:
        if report.when == "call":
            report.duration = duration
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape surrogates in the reports of tests, so that processes can exchange them."""
    report = yield
    report.sections = [(name, _sendable(text)) for name, text in report.sections]
    if report.longrepr and _sendable(report.longreprtext) != report.longreprtext:
        report.longrepr = _sendable(report.longreprtext)
    return report


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Print the number of journeys through JupyterLab, and the skipped tests."""
    reports = {
        outcome: [each for each in terminalreporter.getreports(outcome) if is_last(each)]
        for outcome in ("passed", "failed", "skipped")
    }
    failed = {each.nodeid for each in reports["failed"] + terminalreporter.getreports("error")}
    journeys = {
        outcome: sum(each.nodeid.startswith(JOURNEYS) for each in found)
        for outcome, found in reports.items()
    }
    if any(journeys.values()):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in journeys.items() if count)
        terminalreporter.write_line(f"journeys through JupyterLab in a real browser: {counts}")
    skipped = {each.nodeid: skips.reason_of(each) for each in reports["skipped"]}
    if skipped:
        terminalreporter.write_line(skips.left_out(skipped.values()))
    if hasattr(terminalreporter.config, "workerinput"):  # the process above it notes all tests
        return
    ran = sorted({each.nodeid for each in reports["passed"]} | failed)
    skips.write(skips.Note(skipped, ran, sorted(failed), int(exitstatus)))


def is_last(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Return whether this is the final report of a test, or of a skipped module."""
    return report.when in ("call", "collect") or report.outcome != "passed"


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set the home to an empty folder; tests that start a master use a home of their own."""
    home = tmp_path_factory.mktemp("unused-home")
    waiting.folders.append(tmp_path_factory.getbasetemp())
    os.environ[paths.HOME_VARIABLE] = str(home)
    yield home
    del os.environ[paths.HOME_VARIABLE]


@pytest.fixture(scope="module", autouse=True)
def _modules_close_what_they_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make an unclosed socket or file fail the module that opened it, not a later one.

    Objects that exist afterwards mostly stay, such as imported modules: they are not checked
    again.
    """
    yield
    if request.node.nodeid.startswith(REAL_PARTS):
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    left = end_what_is_left(tmp_path_factory.getbasetemp())
    assert not left, left


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """End the processes that tests have left; test processes that were killed have not done so."""
    yield
    plugins = session.config.pluginmanager
    if not plugins.hasplugin("dsession"):  # of the process that only distributes tests
        return
    factory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # as xdist asks it
    if left := end_what_is_left(factory.getbasetemp()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        plugins.getplugin("terminalreporter").write_line(left)


def end_what_is_left(folder: Path) -> str:
    """Kill the processes that were started under homes in this folder; return a description."""
    left = processes_below(folder)
    names = [f"{p.pid}: {' '.join(p.cmdline())[:100]}" for p in left]
    for process in left:
        process.kill()
    return "\n".join(["processes left behind by the run:", *names]) if names else ""


@pytest.fixture
def zip_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Add a kind of storage that is not a folder, and return a location of it."""
    from det_jupyter.storage.kinds import KINDS
    from tests.zip_storage import SCHEME, ZipStorage

    monkeypatch.setitem(KINDS, SCHEME, ZipStorage)
    return f"{SCHEME}://{tmp_path}/zipped"


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each configuration that is parsed in this process is appended."""
    parsed: list[Any] = []
    validate = ExperimentConfig.model_validate

    def note(document: Any) -> ExperimentConfig:
        parsed.append(document)
        return validate(document)

    monkeypatch.setattr(ExperimentConfig, "model_validate", note)
    return parsed
