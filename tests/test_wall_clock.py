"""No test fails because the computer is busy.

None asserts that something took a few seconds. Assert an order, a count or a fake clock instead.
Where only time distinguishes two ways, the limit is a fraction of what the other way takes, and no
less than `LEAST_S`. Benchmarks measure.

None waits for a number of seconds: see tests/waiting.py. A number below `TRIED_S` is of a test of
limits, or of a look that is repeated. A stand-in that holds an answer back until it is released
does so for `HELD_S` at most: as long as a test may take.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
LEAST_S = 10.0
TRIED_S, HELD_S = 5.0, 600.0
# Whose last argument, and whose `timeout` is a limit.
LAST = {"join", "result", "timeout", "wait", "wait_for", "wait_until"}
NAMED = {
    "Barrier", "check_output", "communicate", "create_connection", "execute_interactive", "get",
    "get_msg", "join", "pause", "result", "run", "wait", "wait_for", "wait_for_ready",
}  # fmt: skip
# For it to be worth while to parse a file: only then can it have what is looked for.
TIMED = re.compile(rf"\btime\.(?:{'|'.join(CLOCKS)})\b")
SUSPECT = re.compile(rf"timeout|(?:assert|while) .*time\.|\b(?:{'|'.join(LAST)})\(.*\d\)")
# Those whose subject is how long that may take, and stand-ins for programs that have a limit.
LIMITED = {
    "browser/screenshot.py", "docs_recording.py", "reader_pages.py",
    "integration/agent_support.py",
    "integration/test_master_process.py", "integration/test_master_submitting.py",
}  # fmt: skip


def test_no_test_asserts_that_something_took_a_few_seconds() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if "benchmarks" not in path.parts
        if is_timed(source := path.read_text(encoding="utf-8"))
        for line in short_limits(source)
    ]
    assert not found


def is_timed(source: str) -> bool:
    return " - " in source and TIMED.search(source) is not None


def short_limits(source: str) -> list[int]:
    """Return the lines with an assertion that measured seconds are less than `LEAST_S`."""
    tree = ast.parse(source)
    measured = names_of_durations(tree)
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        for less, more in bounds(node.test)
        if is_short(more) and is_duration(less, measured)
    ]


def bounds(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the pairs of which the first has to be less than the second."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                if isinstance(operator, (ast.Lt, ast.LtE)):
                    yield left, right
                if isinstance(operator, (ast.Gt, ast.GtE)):
                    yield right, left


def is_short(limit: ast.expr) -> bool:
    value = limit.value if isinstance(limit, ast.Constant) else None
    return isinstance(value, (int, float)) and value < LEAST_S


def names_of_durations(tree: ast.Module) -> set[str]:
    """Return the names that are given durations, and the functions that return them."""
    names: set[str] = set()
    while True:
        before = len(names)
        for node in ast.walk(tree):
            names |= given(node, names)
        if len(names) == before:
            return names


def given(node: ast.AST, known: set[str]) -> set[str]:
    """Return the names to which a node gives a duration."""
    match node:
        case ast.Assign(targets=targets, value=value) if is_duration(value, known):
            return {
                name.id
                for each in targets
                for name in ast.walk(each)
                if isinstance(name, ast.Name)
            }
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
            return {name} if is_duration(value, known) else set()
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            return {name} if any(each and is_duration(each, known) for each in returned) else set()
    return set()


def is_duration(value: ast.expr, known: set[str]) -> bool:
    """Whether an expression has a difference of times in it, or the name of one."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in known:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and has_clock(node):
            return True
    return False


def has_clock(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in CLOCKS
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
        for node in ast.walk(value)
    )


MEASURED = """
def took():
    began = time.monotonic()
    return time.monotonic() - began
def test_it():
    began = time.perf_counter()
    taken_s = time.perf_counter() - began
    times.append(taken_s)
"""


def test_short_limits_are_found_however_they_are_written() -> None:
    for refused in (
        "time.monotonic() - began < 1", "taken_s <= 0.5", "2.0 > taken_s", "0 < min(times) < 3",
        "run(took()) < 8", "took() < 9 and True",
    ):  # fmt: skip
        source = f"{MEASURED}    assert {refused}\n"
        assert is_timed(source), refused
        assert short_limits(source), refused
    for fine in (
        "time.monotonic() - began < 20", "taken_s > 0.5", "time.monotonic() < deadline",
        "len(seen) < 3", "taken_s < other_s",
    ):  # fmt: skip
        assert not short_limits(f"{MEASURED}    assert {fine}\n"), fine


def test_no_wait_ends_after_a_number_of_seconds() -> None:
    programs = ("benchmarks", "machines", "soak")
    found = [
        f"{name}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not set(programs) & set(path.parts)
        if (name := str(path.relative_to(TESTS))) not in LIMITED
        if SUSPECT.search(source := path.read_text(encoding="utf-8"))
        for line in limited_waits(source)
    ]
    assert not found, "wait without a limit, or with tests/waiting.py"


def limited_waits(source: str) -> list[int]:
    """Return the lines with a call that waits for a number of seconds, or a loop that does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.While(test=test) if has_clock(test):
                found.append(node.lineno)
            case ast.Assert(test=test) if any(is_now(less) for less, _ in bounds(test)):
                found.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args):
                limits = args[-1:] if name in LAST else []
                if name in NAMED:
                    limits += [each.value for each in node.keywords if each.arg == "timeout"]
                found += [node.lineno for each in limits if is_limit(each)]
    return found


def is_now(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and has_clock(value.func)


def is_limit(value: ast.expr) -> bool:
    seconds = value.value if isinstance(value, ast.Constant) else None
    return isinstance(seconds, (int, float)) and TRIED_S <= seconds < HELD_S


def test_waits_for_a_number_of_seconds_are_found_however_they_are_written() -> None:
    for refused in (
        "experiment.wait(60)", "thread.join(timeout=10)", "subprocess.run(command, timeout=5.0)",
        "while time.monotonic() < deadline: pass", 'wait_until(is_there, "it is there", 30)',
        "asyncio.timeout(20)", "future.result(timeout=5)", "assert time.monotonic() < deadline",
    ):  # fmt: skip
        assert SUSPECT.search(refused), refused
        assert limited_waits(refused), refused
    for fine in (
        "experiment.wait()", "experiment.wait(timeout=0.1)", "event.wait(600)",
        "while not is_there: pass", "places.get(name)", "assert time.monotonic() > begun",
    ):  # fmt: skip
        assert not limited_waits(fine), fine
