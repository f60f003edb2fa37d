"""`det docs`: pages are found, and every link of every page leads somewhere, without a network."""

from __future__ import annotations

import pydoc
import re
from collections import Counter
from pathlib import Path

import pytest

from det_jupyter.errors import NotFound
from det_jupyter.front.cli.__main__ import main
from det_jupyter.front.notebook.complete.magic_parsers import det_parser
from det_jupyter.front.verbs import docs_pages
from det_jupyter.front.verbs.docs_pages import REPOSITORY, Page, find, names
from det_jupyter.front.verbs.grammar import parse

ROOT = Path(__file__).parents[4]
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def in_notebook() -> dict[str, str]:
    """Return the pages as a notebook shows them, by name."""
    return {name: Page(name)._repr_markdown_() for name in names()}


@pytest.fixture(scope="module")
def in_terminal() -> dict[str, str]:
    """Return the pages as a terminal shows them, without their code, by name."""
    return {name: _CODE.sub("", Page(name).text()) for name in names()}


def test_links_of_pages_lead_somewhere_in_a_notebook(in_notebook: dict[str, str]) -> None:
    for name, page in in_notebook.items():
        text = _CODE.sub("", page)
        marks = Counter(re.findall(r'<a id="([^"]+)"></a>', text))
        inside = re.findall(r"\]\(#([^)]+)\)", text)
        assert [each for each in inside if marks[each] != 1] == [], name
        assert unknown_elsewhere(text) == [], name


def test_links_between_pages_are_lines_and_nothing_is_folded_in_a_notebook(
    in_notebook: dict[str, str], in_terminal: dict[str, str]
) -> None:
    """JupyterLab handles clicks itself: a link into a folded part does not open it."""
    for name, text in in_notebook.items():
        typed = re.findall(r"\(`%det (docs [^`]+)`\)", text)
        lines = {parse(det_parser(), line).topic for line in typed}
        assert lines == {*links(in_terminal[name])} - {name}, name
        assert "<details" not in _CODE.sub("", text), name


def test_links_of_pages_lead_somewhere_in_a_terminal(in_terminal: dict[str, str]) -> None:
    for name, text in in_terminal.items():
        assert re.findall(r"\]\([\w./-]+\.md", text) == [], name
        assert [each for each in links(text) if each not in in_terminal] == [], name
        assert unknown_elsewhere(text) == [], name


def links(text: str) -> list[str]:
    """Return the pages that a page in a terminal links to."""
    return re.findall(r"\(det docs ([^)]+)\)", text)


def unknown_elsewhere(text: str) -> list[str]:
    """Return the links to the repository that lead to no file of it, and relative ones."""
    targets = re.findall(rf"{re.escape(REPOSITORY)}([\w./-]+)", text)
    relative = re.findall(r"\]\((?![a-z]+:|#)([^)]+)\)", text)
    return [each for each in targets if not (ROOT / each).exists()] + relative


def test_each_output_has_marks_of_its_own() -> None:
    texts = (Page("jupyterlab")._repr_markdown_() for _ in range(2))
    first, second = (set(re.findall(r'<a id="([^"]+)"', each)) for each in texts)
    assert first
    assert not first & second


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (None, "README"), ("training", "training"), ("Hangs.md", "hangs"), ("docs/det.md", "det"),
        ("prof", "profiling"), ("17", "decisions/0017-processes-are-identified-without-the-clock"),
        ("decisions/0017", "decisions/0017-processes-are-identified-without-the-clock"),
    ],
)  # fmt: skip
def test_page_is_found_by_name_beginning_or_number(topic: str | None, name: str) -> None:
    assert find(topic).name == name


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("trianing", r"did you mean training\?"),
        ("co", "there are .*concepts, configuration, core-api"),
        ("x", "there are .*hangs"),
    ],
)
def test_topic_without_one_page_names_those_that_are_like_it(topic: str, said: str) -> None:
    with pytest.raises(NotFound, match=f"there is no page '{topic}'; {said}"):
        find(topic)


@pytest.mark.parametrize("word", ["docs", "help"])
def test_shell_prints_a_page_without_a_master_and_pages_it_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    assert main([word, "hangs"]) == 0
    assert capsys.readouterr().out == f"{Page('hangs').text()}\n"
    shown: list[str] = []
    monkeypatch.setattr(pydoc, "pager", shown.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main([word, "hangs"]) == 0
    assert (capsys.readouterr().out, shown) == ("", [Page("hangs").text()])


def test_a_page_is_titled_by_its_first_heading_and_links_to_its_own_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.md").write_text(
        "# The `det` line\n\n## A part\n\n[here](own.md#a-part) [top](own.md) [there](b.md#c) "
        "[gone](lost.md) `[code](b.md)`\n"
    )
    (tmp_path / "b.md").write_text("# B\n")
    monkeypatch.setattr(docs_pages, "_PLACES", (tmp_path / "none", tmp_path))
    page = docs_pages.Page("own")
    assert page.title == "The `det` line"
    shown = page._repr_markdown_()
    prefix = shown.partition('"')[2].partition('"')[0]
    assert f"[here](#{prefix}-a-part) [top](#{prefix}) there (`%det docs b`) " in shown
    assert "`[code](b.md)`" in shown
    assert f'<a id="{prefix}-a-part"></a>\n\n## A part' in shown
    assert "there (%det docs b)" in repr(page)
    assert "there (det docs b)" in page.text()
    assert "docs/lost.md" in page.text()


def test_notebook_has_the_verb_too() -> None:
    assert parse(det_parser(), "docs training").topic == "training"
    assert parse(det_parser(), "help training").topic == "training"
