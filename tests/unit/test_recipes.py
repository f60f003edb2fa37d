"""Each recipe of docs/recipes.md leads to something that works, and names the files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recipes import RECIPES, Recipe

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "det_jupyter"


def files_named(title: str) -> set[str]:
    """Return the files below det_jupyter in the numbered list of a recipe."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    part = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    steps = [line for line in part.splitlines() if re.match(r"\d+\. ", line)]
    return {name for line in steps for name in re.findall(r"`([a-z_]+/[\w/]+\.py)`", line)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_change_by_the_recipe_works(recipe: Recipe, tmp_path: Path) -> None:
    copy = tmp_path / "det_jupyter"
    shutil.copytree(
        PACKAGE, copy, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, replacements in recipe.changed.items():
        text = (PACKAGE / name).read_text(encoding="utf-8")
        for old, new in replacements:
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, new)
        (copy / name).unlink()
        (copy / name).write_text(text, encoding="utf-8")
    for name, text in recipe.new.items():
        assert not (PACKAGE / name).exists()
        (copy / name).write_text(text.lstrip(), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", recipe.check],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_names_the_files_of_the_change(recipe: Recipe) -> None:
    named = files_named(recipe.title)
    assert recipe.changed.keys() <= named
    assert {str(Path(name).parent) for name in recipe.new} <= {str(Path(n).parent) for n in named}
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_each_recipe_of_the_page_is_tried() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [recipe.title for recipe in RECIPES]
