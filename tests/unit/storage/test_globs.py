"""Which files of a checkpoint patterns match, and which patterns are refused."""

from __future__ import annotations

import pytest

from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.storage.globs import check_globs, matching, must_match

FILES = ["a.pt", "code/a.py", "code/deep/b.py", "metadata.json", "optimizer/0.pt"]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.pt", ["a.pt"]),
        ("code/*", ["code/a.py"]),
        ("code/**", ["code/a.py", "code/deep/b.py"]),
        ("**/b.py", ["code/deep/b.py"]),
        ("**/**/a.py", ["code/a.py"]),
        ("code/**/a.py", ["code/a.py"]),
        ("*/a.py/*", []),
        ("**", ["a.pt", "code/a.py", "code/deep/b.py", "optimizer/0.pt"]),
        ("metadata.json", []),
    ],
)
def test_two_stars_match_any_number_of_folders_and_metadata_is_never_matched(
    glob: str, expected: list[str]
) -> None:
    assert matching(FILES, [glob]) == expected


@pytest.mark.parametrize("glob", ["", "/etc/*", "../*", "code/../../*"])
def test_patterns_that_lead_out_of_the_folder_are_refused(glob: str) -> None:
    check_globs(["*.pt", "..a/b"])
    with pytest.raises(
        ConfigError, match="expected a pattern of files in the checkpoint's folder"
    ):
        check_globs(["*.pt", glob])


def test_patterns_have_to_match_a_file_of_a_checkpoint_that_exists() -> None:
    must_match("/there/one", FILES, ["*.none", "code/*"])
    with pytest.raises(
        NotFound, match=r"^no file of checkpoint one matches \*\.none; it has a\.pt"
    ):
        must_match("/there/one", FILES, ["*.none"])
    with pytest.raises(NotFound, match=r"^cannot find checkpoint one in /there; is its drive"):
        must_match("/there/one", [], ["*"])


def test_what_a_checkpoint_has_is_named_up_to_five_files_and_without_its_metadata() -> None:
    files = [*(f"{number}.pt" for number in range(7)), "metadata.json"]
    with pytest.raises(NotFound) as refusal:
        must_match("/there/one", files, ["*.a", "*.b"])
    assert str(refusal.value) == (
        "no file of checkpoint one matches *.a or *.b; it has 0.pt, 1.pt, 2.pt, 3.pt, 4.pt and 2 "
        "more"
    )
    with pytest.raises(NotFound, match=r"it has no other files$"):
        must_match("/there/one", ["metadata.json"], ["*"])
