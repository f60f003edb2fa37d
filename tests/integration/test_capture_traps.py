"""Mistakes that show in a trial's code before it runs: notices, and no false alarms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.capture_notebook import Notebook, open_notebook
from tests.trials import TRIAL_SOURCE

RIGHT = (
    "        self.context.backward(loss)\n        self.context.step_optimizer(self.optimizer)\n"
)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with open_notebook(tmp_path_factory.mktemp("traps")) as book:
        book.run("import functools\nimport pdb\nimport torch\nscale = 2", TRIAL_SOURCE)
        yield book


def told(notebook: Notebook, source: str, entrypoint: str = "Trial") -> list[str]:
    notebook.run(source)
    return notebook.capture(entrypoint).notices


def with_step(step: str) -> str:
    source = TRIAL_SOURCE[TRIAL_SOURCE.index("class SmallTrial") :]
    return source.replace("SmallTrial", "Trial").replace(RIGHT, f"        {step}\n")


@pytest.mark.parametrize(
    ("body", "told_of"),
    [
        ("return scal * 2", "f: scal is defined nowhere, so ranks that come to it end with a "
         "NameError; did you mean scale?"),
        ("length = 3\n  return [lenght for _ in range(2)]", "did you mean length?"),
        ("return lambda: frobnicate()", "frobnicate is defined nowhere"),
        ("breakpoint()", "f: breakpoint() needs a terminal, and ranks have none; "
         "%%det_experiment --local runs"),
        ("pdb.set_trace()", "f: set_trace() needs a terminal"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_to_write(notebook: Notebook, body: str, told_of: str) -> None:
    (notice,) = told(notebook, f"def f():\n  {body}", "f")
    assert told_of in notice


@pytest.mark.parametrize(
    "body",
    [
        "return scale, print, __name__, torch.nn.Linear",
        "global made_here\n  made_here = 3\n  return made_here",
        "return [x for x in range(3)], (lambda y: y)(1), functools.partial",
        "import math\n  return math.pi",
        "class Inner:\n    def g(self): return scale\n  return Inner",
        "tracer = torch\n  tracer.set_trace = None",
    ],
)
def test_code_that_works_has_no_notice(notebook: Notebook, body: str) -> None:
    assert told(notebook, f"def f():\n  {body}", "f") == []


def test_raw_calls_of_torch_are_told_with_those_of_the_context(notebook: Notebook) -> None:
    notices = told(notebook, with_step("loss.backward(); self.optimizer.step()"))
    assert [notice.partition(": ")[0] for notice in notices] == ["Trial.train_batch"] * 2
    assert "loss.backward() does not exchange" in notices[0]
    assert "write self.context.backward(loss)" in notices[0]
    assert "write self.context.step_optimizer(self.optimizer)" in notices[1]


RAW = "loss.backward()"


@pytest.mark.parametrize(
    ("above", "body", "where"),
    [
        # The base class's own method, which calls the context, is never run.
        ("class Trial(Base):", f"  def train_batch(self, loss, e, i):\n    {RAW}",
         "Trial.train_batch"),
        ("class Trial(Base):", "  def train_batch(self, batch, e, i): self.step()\n"
         f"  @staticmethod\n  def step(loss):\n    {RAW}", "Trial.step"),
        (f"class Mixed:\n  def step(self, loss):\n    {RAW}\nclass Trial(Mixed, Base):",
         "  def train_batch(self, batch, e, i): self.step()", "Mixed.step"),
        ("def step(self, loss):\n  loss.backward()\nclass Trial(Base):",
         "  def train_batch(self, batch, e, i): step(self, 1)", "step"),
    ],
)  # fmt: skip
def test_a_raw_call_is_found_wherever_it_is_inherited_from(
    notebook: Notebook, above: str, body: str, where: str
) -> None:
    notebook.run(with_step(RIGHT.strip()).replace("class Trial", "class Base"))
    (notice,) = told(notebook, f"{above}\n{body}")
    assert notice.startswith(f"{where}: loss.backward() does not exchange")


def test_a_method_that_goes_on_with_its_bases_is_right(notebook: Notebook) -> None:
    notebook.run(with_step(RIGHT.strip()).replace("class Trial", "class Base"))
    raw = "x = torch.ones(1, requires_grad=True); (x * 2).backward()"
    body = f"{raw}\n    return super().train_batch(batch, e, i)"
    assert (
        told(notebook, f"class Trial(Base):\n  def train_batch(self, batch, e, i):\n    {body}")
        == []
    )


@pytest.mark.parametrize(
    "step",
    [
        RIGHT.strip(),
        # The gradients of an input, which the trial throws away.
        f"(loss * 2).backward(); self.optimizer.zero_grad(); {'; '.join(RIGHT.split())}",
        "self.context.backward(loss); self.context.step_optimizer(self.optimizer); "
        "self.lr_scheduler.step()",
    ],
)
def test_calls_of_the_context_have_no_notice(notebook: Notebook, step: str) -> None:
    assert told(notebook, with_step(step)) == []


def test_a_function_may_step_its_own_optimizer(notebook: Notebook) -> None:
    body = "loss = torch.ones(1)\n  optimizer = torch.optim\n  loss.backward(); optimizer.step()"
    assert told(notebook, f"def f():\n  {body}", "f") == []


MADE = "self.other = torch.optim.Adam(self.model.parameters())"


def with_line(line: str) -> str:
    """Return the trial with another line at the end of `__init__`."""
    end = '        self.pause_s = context.get_hparam("pause_s")\n'
    return with_step(RIGHT.strip()).replace(end, f"{end}        {line}\n")


def test_an_optimizer_that_is_made_and_never_wrapped_is_told(notebook: Notebook) -> None:
    assert told(notebook, with_line(MADE)) == [
        "Trial.__init__: self.other (torch.optim.Adam) is in no checkpoint, so a run that "
        "continues begins it anew; write self.other = "
        "context.wrap_optimizer(torch.optim.Adam(...))"
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"{MADE}; context.wrap_optimizer(self.other)",
        f"{MADE}; self.other = context.wrap_optimizer(self.other)",
        f"{MADE}\n        for each in [self.other]: context.wrap_optimizer(each)",
        f"{MADE}; self.ahead = functools.partial(print, self.other)",
        f"{MADE}; print(self)",
        f"{MADE}\n\n    def build_callbacks(self): return {{}}",
        "self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)",
    ],
)
def test_an_optimizer_that_may_be_saved_is_not_told(notebook: Notebook, line: str) -> None:
    assert told(notebook, with_line(line)) == []
