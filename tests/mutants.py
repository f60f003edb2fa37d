"""Measures how many small faults in each part of the package its unit tests detect.

    python -m tests.mutants [PART ...] [--sample 150] [--minutes 30] [--seed 1] [--processes 2]

A mutant is a part with one fault: an inverted comparison, `and` for `or`, a number off by one, a
missing statement. A sample of all possible mutants is tried. The unit tests run once without
faults, to record which functions each test calls. For a mutant, only the tests that call the
changed function run, the short ones first; the first failure detects the fault. A test that takes
three times longer than usual counts as failed; a test that fails without a fault is left out and
reported. A survivor may be no fault (such as a missing shortcut), so 100 % is not the aim. Code
that runs only at the import of its module is left out: it has run before a fault is inserted.

Each mutant is a fork of this process, which has collected the tests; the fork replaces the code of
the function. No file is changed. (mutmut 3 does not change decorated functions, such as
properties, and slows the stateful tests of Hypothesis down many times. cosmic-ray starts a Python
process for each mutant and takes no sample.)
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FrameType, FunctionType
from typing import Any

import psutil
import pytest
from hypothesis import Phase, settings

from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.errors import DetError
from tests import rooms

_TOP = "det_jupyter"  # name of the part with the modules that are in no folder
_SPLIT = ("master",)  # parts that are too large for one sample: each of their rooms is a part
_SERVED = (  # a whole master in the process of the test, without a server
    "agent_listener background_loops background_programs clusters clusters_together consoles "
    "consult disk_usage gangs_over_agents growth hostile_journals importing keeping logs "
    "master_feed master_ingest master_snapshots master_submitting master_verdicts one_cluster "
    "quarantine remote_agents_registering reports_taken routes_of_agents "
    "routes_of_experiments routes_of_others routes_of_users series tunnels watched_agents "
    "watched_disks"
)
_SERVICE = " ".join(
    [
        *(f"tests/integration/test_{name}.py" for name in _SERVED.split()),
        "tests/integration/alerts tests/integration/trackers/test_tracked.py",
    ]
)
_IN_PROCESS = (
    "agent_devices_seen agent_leaving agent_runner agent_sampler agent_spawn lease tunnels"
)
_OF_MESSAGES = (
    "tests/unit/agent/runs "
    "tests/unit/client/handles/test_boards.py tests/unit/client/handles/test_trial_orders.py "
    "tests/unit/config/test_config_limits.py tests/unit/config/test_parsing.py "
    "tests/unit/core/test_device_errors.py tests/unit/searcher/test_rung_lengths.py "
    "tests/integration/test_checkpoint_code.py "
    "tests/integration/test_run_processes.py tests/integration/test_tls_listener.py"
)
_CAPTURED = ("", "_modules", "_refusals", "_tensors", "_traps")  # in a shell of this process
_TRAINED = "checkpoint_code data_workers saving trainer usual_trials validation_shares"
_TESTS_ELSEWHERE = {  # by part: further tests, besides the folder of its name in tests/unit
    "agent": " ".join(f"tests/integration/test_{name}.py" for name in _IN_PROCESS.split()),
    "contract": _OF_MESSAGES,
    _TOP: "tests/unit/test_silent_masters.py",
    "client": "tests/unit/front tests/integration/test_importing.py "
    "tests/integration/test_archives.py",
    "core": "tests/unit/contract/run/test_control_page.py tests/unit/contract/run/test_room.py "
    "tests/unit/integrations/test_savers.py tests/unit/launch/test_trial.py "
    "tests/unit/pytorch/training/test_trial_run.py tests/unit/rank "
    "tests/unit/test_profiler_context.py tests/integration/test_saving.py "
    "tests/integration/test_trainer.py tests/integration/test_training_timings.py",
    "front": " ".join(
        [
            *(f"tests/integration/test_capture{name}.py" for name in _CAPTURED),
            "tests/integration/server tests/unit/client",
        ]
    ),
    "master": "tests/integration/test_masters_stopped.py tests/integration/test_serving.py",
    "master/background": _SERVICE,
    "master/delivery": _SERVICE,
    "master/http": _SERVICE,
    "master/sampling": "tests/integration/test_consult.py tests/integration/test_sampling.py",
    "master/service": _SERVICE,
    "pytorch": " ".join(f"tests/integration/test_{name}.py" for name in _TRAINED.split()),
    "view": "tests/unit/client tests/unit/front/verbs",
}
_EXAMPLES = "tests/unit/test_examples.py"  # examples in docstrings: only those of the part count
_LIBRARIES = "cloudpickle fastapi httpx hypothesis.stateful IPython numpy psutil torch tqdm yaml"
_INSTEAD: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_UNNOTICED = 99  # exit code of a fork; with a fault, tests may call os._exit(0) themselves
_CALLED_INSTEAD = {"min": "max", "max": "min", "any": "all", "all": "any"}


Function = tuple[str, int]  # file and first line of a function
Defined = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: the possible change of a function with this `number`."""

    path: Path
    function: Function
    number: int

    def made(self) -> tuple[CodeType, str]:
        """Return the changed code of the function, and a description of the change."""
        tree = ast.parse(self.path.read_text())
        function = next(f for f in _functions(tree) if _first_line(f) == self.function[1])
        node, fault, put = list(_faults(function))[self.number]
        before = ast.unparse(node).splitlines()[0]
        put(fault)
        after = ast.unparse(fault).splitlines()[0]
        module = compile(ast.fix_missing_locations(tree), self.function[0], "exec")
        changed = next(code for code in _codes(module) if _key(code) == self.function)
        return changed, f"{self.path}:{getattr(node, 'lineno', 0)}  {before}  ->  {after}"


def _key(code: CodeType) -> Function:
    return code.co_filename, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _first_line(function: Defined) -> int:
    return min(node.lineno for node in (function, *function.decorator_list))


def _functions(tree: ast.AST) -> Iterator[Defined]:
    """Yield the functions of a module and the methods of its classes, without nested functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Defined):
            yield node
        else:
            yield from _functions(node)


def part_of(path: Path) -> str:
    """Return the part that a module belongs to.

    >>> part_of(rooms.PACKAGE / "view" / "forms" / "tables.py")
    'view'
    >>> part_of(rooms.PACKAGE / "master" / "machine" / "model" / "state.py")
    'master/machine'
    >>> part_of(rooms.PACKAGE / "connection.py")
    'det_jupyter'
    """
    *folders, _ = path.relative_to(rooms.PACKAGE).parts
    return "/".join(folders[: 2 if folders and folders[0] in _SPLIT else 1]) or _TOP


def parts() -> dict[str, list[Path]]:
    """Return the parts of the package that have functions, each with such modules."""
    found = defaultdict[str, list[Path]](list)
    for path in rooms.modules():
        if any(_functions(rooms.tree(path))):
            found[part_of(path)].append(path.relative_to(rooms.ROOT))
    return dict(sorted(found.items()))


def tests_of(part: str) -> list[str]:
    """Return the test paths of a part: the folder of its name, and those in `_TESTS_ELSEWHERE`.

    >>> tests_of("master/views")
    ['tests/unit/master', 'tests/unit/test_examples.py']
    >>> tests_of("det_jupyter")[:2]
    ['tests/unit/test_connection.py', 'tests/unit/test_errors.py']
    """
    if part == _TOP:
        named = [f"tests/unit/test_{path.stem}.py" for path in parts()[part]]
        places = [place for place in named if Path(place).exists()]
    else:
        places = [f"tests/unit/{part.split('/')[0]}"]
    return [*places, *_TESTS_ELSEWHERE.get(part, "").split(), _EXAMPLES]


def mutants_of(paths: Sequence[Path]) -> Iterator[Mutant]:
    """Give all possible mutants of some modules."""
    for path in paths:
        for function in _functions(ast.parse(path.read_text())):
            for number, _ in enumerate(_faults(function)):
                yield Mutant(path, (str(path.absolute()), _first_line(function)), number)


Put = Callable[[ast.AST], None]


def _faults(function: Defined) -> Iterator[tuple[ast.AST, ast.AST, Put]]:
    """Yield each node of a function, each faulty replacement, and how to insert it."""
    for node in ast.walk(function):
        if isinstance(node, Defined):
            for index in range(len(node.body)):
                for inner, put in _below(node, "body", index):
                    for fault in _instead(inner):
                        yield inner, fault, put


def _below(parent: ast.AST, name: str, index: int | None) -> Iterator[tuple[ast.AST, Put]]:
    """Yield a node and all nodes in it, without types, assertions and nested functions."""
    held = getattr(parent, name)
    node = held if index is None else held[index]
    # This argument is an assertion, too.
    is_strict = isinstance(node, ast.keyword) and node.arg == "strict"
    skipped = Defined | ast.ClassDef | ast.Assert
    if name in ("annotation", "format_spec") or is_strict or isinstance(node, skipped):
        return

    def put(fault: ast.AST) -> None:
        if index is None:
            setattr(parent, name, fault)
        else:
            held[index] = fault

    yield node, put
    for inner, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield from _below(node, inner, None)
        elif isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _below(node, inner, place)


def _changed(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """Yield faulty replacements of a node."""
    match node:
        case ast.Compare(ops=[first, *others]) if type(first) in _INSTEAD:
            yield _changed(node, ops=[_INSTEAD[type(first)](), *others])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _INSTEAD:
            yield _changed(node, op=_INSTEAD[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _changed(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield _changed(node, ifs=[])
        case ast.Constant(value=bool() as truth):
            yield ast.Constant(not truth)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED_INSTEAD:
            yield _changed(node, func=ast.Name(_CALLED_INSTEAD[name], ast.Load()))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Break() | ast.Continue():
            yield _INSTEAD[type(node)]()


class Calls:
    """Records which functions of the modules are called, by the key of the caller."""

    def __init__(self) -> None:
        self.by: defaultdict[str, set[Function]] = defaultdict(set)
        self._caller = ""
        self._folder = str(Path("det_jupyter").absolute())
        # Lines written by processes that tests fork.
        self._in_forks = TemporaryFile("a+", buffering=1)  # noqa: SIM115 - until the end
        self._pid, self._getpid = 0, os.getpid  # tests may replace os.getpid

    def note(self, caller: str) -> None:
        """Record calls under this test from now on; "" if they belong to no test."""
        self._caller, self._pid = caller, self._getpid()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def _on_call(self, frame: FrameType, event: str, _: object) -> None:
        key, known = _key(frame.f_code), self.by[self._caller]
        if key[0].startswith(self._folder) and key not in known:
            known.add(key)
            if self._getpid() != self._pid:
                self._in_forks.write(json.dumps([self._caller, *key]) + "\n")

    def add_forks(self) -> None:
        """Add the calls of processes that tests have forked. Call it once, at the end."""
        with self._in_forks as lines:
            lines.seek(0)
            for caller, file, line in map(json.loads, lines):
                self.by[caller].add((file, line))


@dataclass(slots=True)
class Outcome:
    """The results of a sample of a part's mutants."""

    part: str
    possible: int = 0
    tried: int = 0
    survivors: list[str] = field(default_factory=list)
    # Modules and tests that were left out, with the reason.
    left_out: list[str] = field(default_factory=list)

    def note(self, change: str, *, survived: bool) -> None:
        """Count a fault that was tried."""
        self.tried += 1
        print("SURVIVED" if survived else "noticed ", change, flush=True)
        if survived:
            self.survivors.append(change)

    def __str__(self) -> str:
        share = f"{1 - len(self.survivors) / self.tried:7.1%}" if self.tried else "no time left"
        line = f"{self.part:<18} {self.possible:6} possible {self.tried:5} tried {share}"
        left_out = [f"left out: {each}" for each in self.left_out]
        return "\n    ".join([line, *left_out, *sorted(self.survivors)])


class Trying:
    """A pytest plugin that runs the collected tests with faults instead of once as they are."""

    def __init__(
        self, tried: Sequence[str], options: argparse.Namespace, calls: Calls, tests: Sequence[str]
    ) -> None:
        self._options, self._calls, self._places = options, calls, tests
        self._tests = list[pytest.Item]()
        self._calls.note("")
        self.outcomes = [Outcome(part) for part in tried]
        self._files = {
            outcome.part: [path for path in parts()[outcome.part] if _is_imported(path, outcome)]
            for outcome in self.outcomes
        }
        self._took_s: dict[str, float] = {}
        self._passed = 0
        self._failed = ""

    def pytest_collection(self) -> None:
        """Configure Hypothesis not to shrink failures and not to store them."""
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", phases=phases, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the examples in the docstrings of other parts."""
        paths = [path for paths in self._files.values() for path in paths]
        own = {f"[{path.relative_to(rooms.PACKAGE.name)}]" for path in paths}
        items[:] = [
            item
            for item in items
            if not item.nodeid.startswith(_EXAMPLES) or item.nodeid.endswith(tuple(own))
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failure, or count a test of the part that has passed."""
        if report.failed:
            self._failed = f"{report.nodeid}\n{report.longreprtext}"
        elif report.when == "call" and report.passed and not report.nodeid.startswith(_EXAMPLES):
            self._passed += 1

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once without faults, then the tests of each mutant."""
        sys.settrace(None)
        threading.settrace(None)
        self._tests = session.items
        self._look()
        for outcome in self.outcomes:
            self._try(outcome)
        return True

    def _look(self) -> None:
        """Record in a fork which functions each test calls, and how long it takes."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            silence()
            failures = dict[str, str]()
            for test, following in zip(self._tests, [*self._tests[1:], None], strict=True):
                begin = time.process_time()
                self._calls.note(test.nodeid)
                _run(test, following)
                self._took_s[test.nodeid] = time.process_time() - begin
                if self._failed:
                    failures[test.nodeid] = self._failed
                    self._failed = ""
            self._calls.add_forks()
            with open(writing, "wb") as pipe:
                pickle.dump((self._calls.by, self._took_s, self._passed, failures), pipe)
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            self._calls.by, self._took_s, passed, failures = pickle.load(pipe)
        os.wait()
        if not passed:
            raise pytest.UsageError(f"no test has run: {' '.join(self._places)}")
        for nodeid, failure in failures.items():
            print(f"FAILS without a fault, so it cannot show any: {failure}", file=sys.stderr)
            for outcome in self.outcomes:
                outcome.left_out.append(f"{nodeid}: it fails without a fault")
        self._tests = [test for test in self._tests if test.nodeid not in failures]

    def _try(self, outcome: Outcome) -> None:
        """Try a sample of a part's mutants, or as many of it as time allows."""
        functions = _live_functions()
        in_tests = set().union(*(calls for test, calls in self._calls.by.items() if test))
        mutants = [
            mutant
            for mutant in mutants_of(self._files[outcome.part])
            if mutant.function in in_tests or mutant.function not in self._calls.by[""]
        ]
        if not mutants:
            raise pytest.UsageError(f"{outcome.part}: no mutant is possible: {outcome}")
        outcome.possible = len(mutants)
        sample = min(self._options.sample, len(mutants))
        waiting = deque(random.Random(self._options.seed).sample(mutants, sample))
        running = dict[int, str]()
        deadline = time.monotonic() + 60 * self._options.minutes
        gc.freeze()  # otherwise each fork copies the pages that its first collection visits
        while waiting or running:
            if time.monotonic() > deadline:
                waiting.clear()
            while waiting and len(running) < self._options.processes:
                mutant = waiting.popleft()
                code, change = mutant.made()
                assert functions[mutant.function], f"{change}: no such function is there"
                running[self._fork(functions[mutant.function], code)] = change
            if not running:
                break
            pid, status = os.wait()
            # In a PID namespace, processes left by a test become children of this one.
            if pid not in running:
                continue
            outcome.note(running.pop(pid), survived=status == _UNNOTICED << 8)

    def _fork(self, functions: Sequence[FunctionType], code: CodeType) -> int:
        """Fork a process that runs the tests of a changed function; return its pid."""
        calling = {test for test, calls in self._calls.by.items() if _key(code) in calls}
        tests = sorted(
            (test for test in self._tests if test.nodeid in calling),
            key=lambda test: self._took_s[test.nodeid],
        )
        limit_s = round(10 + 3 * sum(self._took_s[test.nodeid] for test in tests))
        parent = os.getpid()
        if pid := os.fork():
            return pid
        kill_with_parent(parent)
        keep_others_alive()
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        signal.alarm(60 + 20 * limit_s)
        silence()
        for function in functions:
            function.__code__ = code
        # The last test is followed by itself: clean-up at the end of a session is not needed in a
        # fork.
        for test, following in zip(tests, [*tests[1:], *tests[-1:]], strict=True):
            _run(test, following)
            if self._failed:
                os._exit(1)
        os._exit(_UNNOTICED)


def _run(test: pytest.Item, following: pytest.Item | None) -> None:
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)


def _live_functions() -> dict[Function, list[FunctionType]]:
    functions = defaultdict[Function, list[FunctionType]](list)
    gc.unfreeze()  # frozen objects are not listed
    for thing in gc.get_objects():
        # Not isinstance, which queries proxies, and some of these warn.
        if type(thing) is FunctionType:
            functions[_key(thing.__code__)].append(thing)
    return functions


def keep_others_alive() -> None:
    """Restrict signals to this process and to processes that are started from now on.

    With a fault in the choice of processes to end, tests could kill any process of the computer.
    """
    os.setsid()
    began = psutil.Process().create_time()
    kill, kill_group = os.kill, os.killpg

    def check(pid: int) -> None:
        with suppress(psutil.NoSuchProcess):
            if pid <= 1 or psutil.Process(pid).create_time() < began:
                raise PermissionError(f"process {pid} is not of this test")

    def guarded(pid: int, number: int) -> None:
        check(pid)
        kill(pid, number)

    def guarded_group(group: int, number: int) -> None:
        check(group or os.getpgrp())
        kill_group(group, number)

    os.kill, os.killpg = guarded, guarded_group


def silence() -> None:
    """Suppress the output of a fork of this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _is_imported(path: Path, outcome: Outcome) -> bool:
    """Import a module that may otherwise be imported late; return whether that is possible."""
    try:
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    except (ImportError, DetError) as error:  # a library that is not installed
        outcome.left_out.append(f"{path}: {error}")
        return False
    return True


def try_parts(
    tried: Sequence[str], options: argparse.Namespace, calls: Calls, tests: Sequence[str]
) -> list[Outcome]:
    """Try a sample of the mutants of each part; these parts have the same tests."""
    trying = Trying(tried, options, calls, tests)
    arguments = "-s -qq -p no:cacheprovider -p no:xdist -o timeout=0"
    ignored = "ignore::pytest.PytestAssertRewriteWarning"  # the libraries were imported before
    code = pytest.main([*arguments.split(), "-W", ignored, *tests], [trying])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"{' '.join(tried)}: pytest ended with {code!r}, so nothing is measured")
    return trying.outcomes


def main() -> None:
    """Try the parts, and print the survivors."""
    parser = argparse.ArgumentParser(description="How many small faults do unit tests notice?")
    parser.add_argument("parts", nargs="*", choices=[*parts(), []], metavar="PART", default=[])
    parser.add_argument("--sample", type=int, default=150, help="of each part")
    parser.add_argument("--minutes", type=float, default=30, help="for each part, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if os.geteuid() == 0 and os.getpid() != 1 and (unshare := shutil.which("unshare")):
        # With a fault in the choice of processes to end, no process outside is reached.
        alone = [unshare, "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
        os.execv(unshare, [*alone, "-m", "tests.mutants", *sys.argv[1:]])
    for library in _LIBRARIES.split():
        importlib.import_module(library)
    calls = Calls()
    groups = defaultdict[tuple[str, ...], list[str]](list)
    for part in options.parts or parts():
        groups[tuple(tests_of(part))].append(part)
    outcomes = [
        outcome
        for tests, tried in groups.items()
        for outcome in try_parts(tried, options, calls, tests)
    ]
    print("", *outcomes, sep="\n")


if __name__ == "__main__":
    main()
