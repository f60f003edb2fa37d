"""Which cell defined a name, found in the cells' sources."""

from __future__ import annotations

import pytest
from ipykernel.compiler import XCachingCompiler
from IPython.core.compilerop import CachingCompiler

from det_jupyter.front.notebook.capture.cells import Cells


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "y = x = 1",
        "y, (*x, z) = 1, (2, 3)",
        "x: int = 1",
        "x += 1",
        "def x(): ...",
        "async def x(): ...",
        "class x: ...",
        "import x",
        "import x.y",
        "import y as x",
        "from y import x",
        "from y import z as x",
        "for x in range(3): pass",
        "with open('f') as x: pass",
        "with open('f') as (x, y): pass",
        "if True:\n    x = 1",
        "try:\n    x = 1\nexcept ValueError:\n    pass",
        "while False:\n    pass\nelse:\n    x = 1",
        "if (x := 1): pass",
        "[y for z in range(3) if (x := z)]",
        "match [1, 2]:\n    case [x, *_]: pass",
        "match [1, 2]:\n    case [_, *x]: pass",
        "match {}:\n    case {**x}: pass",
        "match 1:\n    case int() as x: pass",
        "def f():\n    global x\n    x = 1",
        "del x\nx = 1",
        "%time x = 1",
        "x = !ls",
        "x = %pwd",
        "%%time\nx = 1",
        "%%capture out\nx = 1",
        "%matplotlib inline\nx = 1",
        "x = 1\n!ls | grep '",
        "y?\nx = 1",
        "from decimal import *\nx = Decimal(1)",
    ],
)
def test_a_cell_that_binds_a_name_is_its_maker(source: str) -> None:
    assert Cells(["", source]).maker_of("x") == "In [1]"


@pytest.mark.parametrize(
    "source",
    [
        "print(x)",
        "y.x = 1",
        "y['x'] = 1",
        "x: int",
        "[x for x in range(3)]",
        "{x: y for x, y in ()}",
        "f = lambda x: x",
        "def f(x):\n    y = x",
        "class C:\n    x = 1",
        "try: pass\nexcept ValueError as x: pass",
        "# x = 1",
        "'x = 1'",
        "x =",
        "%%bash\nx=1",
        "%%det_experiment\nx: 1",
    ],
)
def test_a_cell_that_only_mentions_a_name_is_not_its_maker(source: str) -> None:
    assert Cells(["", source]).maker_of("x") == ""


def test_the_last_definition_wins() -> None:
    cells = Cells(["", "x = 1", "x = 2", "print(x)"])
    assert cells.maker_of("x") == "In [2]"


def test_a_deleted_name_has_no_maker() -> None:
    assert Cells(["", "x = 1", "del x"]).maker_of("x") == ""


def test_names_of_a_star_import_are_found() -> None:
    assert Cells(["", "from decimal import *", "print(1)"]).maker_of("Decimal") == "In [1]"


def test_broken_cells_do_not_hide_the_others() -> None:
    assert Cells(["", "x = 1", "x = = 2", "def x(:"]).maker_of("x") == "In [1]"


def test_code_files_of_cells_are_known_by_the_compiler() -> None:
    compiler = CachingCompiler()
    file = compiler.cache("x = 1", number=7)
    assert Cells([], compiler).label_of(file) == "Cell In[7]"


def test_code_files_of_cells_are_known_by_their_source_without_the_compiler() -> None:
    compiler = CachingCompiler()
    numbered = compiler.cache("x = 1", number=3)
    assert Cells([]).label_of(numbered) == "Cell In[3]"
    file = XCachingCompiler().cache("y = 2", number=9)
    assert Cells(["", "y = 1", "y = 2\n"]).label_of(file) == "Cell In[2]"


def test_other_files_are_no_cells() -> None:
    assert Cells(["", "x = 1"], CachingCompiler()).label_of(__file__) is None
