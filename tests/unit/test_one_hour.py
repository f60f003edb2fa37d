"""The walks of docs/one-hour.md go through files and names that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "one-hour.md"


def names_in(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ts":
        return set(re.findall(r"\b(?:class|function|private|async|const) (\w+)", text))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)}


def test_each_step_is_a_name_in_a_file() -> None:
    steps = re.findall(r"`([\w/]+\.(?:py|ts)): (\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(steps) > 30
    folders = {".py": ROOT / "det_jupyter", ".ts": ROOT / "labextension" / "src"}
    missing = [
        f"{file}: {name}"
        for file, name in steps
        for path in [folders[Path(file).suffix] / file]
        if not path.is_file() or name not in names_in(path)
    ]
    assert missing == []
