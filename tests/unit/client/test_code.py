"""Captured source: shown as text, written to a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client.taking_out import Code
from det_jupyter.errors import Conflict, DetError

CODE = Code({"Cell In[5]": "class T: ...\n", "nets/wide.py": "WIDTH = 8\n"})


def test_it_prints_as_text_and_is_a_dictionary() -> None:
    assert repr(CODE) == "# ── Cell In[5]\nclass T: ...\n\n# ── nets/wide.py\nWIDTH = 8"
    assert CODE["nets/wide.py"] == "WIDTH = 8\n"


def test_cells_and_modules_are_files_of_a_folder(tmp_path: Path) -> None:
    written = CODE.write(tmp_path / "code")
    assert written == [tmp_path / "code/cell_5.py", tmp_path / "code/nets/wide.py"]
    assert [path.read_text(encoding="utf-8") for path in written] == list(CODE.values())
    assert CODE.write(tmp_path / "code") == written  # the same again changes nothing


def test_a_file_with_other_content_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/wide.py").write_text("mine")
    with pytest.raises(Conflict, match=r"wide\.py: a file with other content is there; give"):
        CODE.write(tmp_path)
    assert not (tmp_path / "cell_5.py").exists()


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DetError, match="would lie outside of the folder"):
        Code({"../up.py": ""}).write(tmp_path / "code")
    assert Code({"/home/a/else.py": "x"}).write(tmp_path) == [tmp_path / "else.py"]
