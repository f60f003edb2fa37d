"""The site, as far as it can be checked without Sphinx; `make docs` builds it."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from det_jupyter.front.verbs.docs_pages import REPOSITORY
from tests.docs_examples import MOST_BYTES, SHOWN
from tests.docs_site import (
    HANDLES,
    INDEX,
    PACKAGES,
    ROOT,
    linked,
    llms_txt,
    places,
    public_names,
    section_page,
    sections,
    stage,
    switcher,
)

QUESTIONS = ROOT / "docs/questions.md"
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@cache
def heading_marks(page: Path) -> set[str]:
    """Return the marks of a page's headings, as links name them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_each_page_and_example_is_in_one_part_of_the_list() -> None:
    listed = [item.path for section in sections() for item in section.items]
    assert len(listed) == len(set(listed))
    needed = {
        path for path in places() if not path.startswith("docs/decisions/") and path != INDEX
    }
    assert set(listed) == needed


def test_no_two_pages_have_the_same_name() -> None:
    of_sphinx = ["search.md", "genindex.md", "py-modindex.md"]
    names = [*places().values(), *(f"{section.name}.md" for section in sections()), *of_sphinx]
    assert [name for name in names if names.count(name) > 1] == []


def test_the_front_page_has_ten_questions_that_lead_to_answers() -> None:
    text = (ROOT / INDEX).read_text()
    marks = re.findall(r"^\d+\. \[.+\?\]\(questions\.md#([\w-]+)\)$", text, re.MULTILINE)
    assert len(marks) == len(set(marks)) == 10
    assert set(marks) <= heading_marks(QUESTIONS)


def test_each_answer_fits_on_a_screen() -> None:
    for answer in QUESTIONS.read_text().split("\n## ")[1:]:
        assert answer.count("\n") <= 32, answer.partition("\n")[0]
        assert len(answer.split()) <= 150, answer.partition("\n")[0]
        assert "```" in answer


def test_links_to_headings_lead_to_headings() -> None:
    for source in (ROOT / path for path in places() if path.endswith(".md")):
        text = _CODE.sub("", source.read_text())
        for target, mark in re.findall(r"\]\((?!https?:)([\w./-]*)#([\w-]+)\)", text):
            page = source.parent / target if target else source
            assert mark in heading_marks(page), f"{source}: {target}#{mark}"


def test_links_lead_to_copies_and_other_links_to_the_repository() -> None:
    text = (
        "[A](scaling.md#limits) [B](../examples/search.ipynb) [C](../Makefile) [D](decisions/)\n"
        "`[E](scaling.md)` [F](https://a.b/c.md) [G](#here) [H](../CHANGELOG.md)\n"
    )
    assert linked(text, "docs/training.md") == (
        f"[A](scaling.md#limits) [B](examples/search.ipynb) [C]({REPOSITORY}Makefile) "
        "[D](decisions/index.md)\n"
        "`[E](scaling.md)` [F](https://a.b/c.md) [G](#here) [H](changelog.md)\n"
    )
    assert linked("[A](../docs/training.md)", "examples/search.ipynb") == "[A](../training.md)"
    recorded = linked("[A](../docs/site/try/)", "examples/search.ipynb")
    assert recorded == '<a href="../try/lab/index.html">A</a>'


def test_a_picture_of_both_themes_is_shown_in_each() -> None:
    text = linked("![Timings](images/timings-light.png)", "docs/profiling.md")
    assert text == (
        "![Timings](images/timings-light.png){.only-light}\n"
        "![Timings](images/timings-dark.png){.only-dark}"
    )
    for light in ROOT.glob("docs/images/*-light.png"):
        assert light.with_name(light.name.replace("-light", "-dark")).exists()


def test_links_of_all_copies_lead_to_copies_and_the_search_leaves_history_out(
    tmp_path: Path,
) -> None:
    stage(tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.md"):
        is_history = page.parent.name == "decisions" or page.name == "changelog.md"
        is_hidden = page.read_text().startswith("---\nnosearch: true\n---\n")
        assert is_hidden == (is_history and page.name != "index.md"), page.name
        for link in _LINK.findall(_CODE.sub("", page.read_text())):
            is_there = (page.parent / link).exists() or link == "api/index.md"  # see stage_api
            assert is_there, f"{page.name}: {link}"


@pytest.mark.parametrize(
    "example", sorted(ROOT.glob("examples/*.ipynb")), ids=lambda path: path.stem
)
def test_examples_show_what_they_have_printed(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    cells = [each for each in json.loads(text)["cells"] if each["cell_type"] == "code"]
    kinds = {
        kind for each in cells for output in each["outputs"] for kind in output.get("data", ())
    }
    assert all(each["execution_count"] for each in cells), "run `make docs-examples`"
    assert "text/html" in kinds
    assert kinds <= set(SHOWN)
    assert len(text) <= MOST_BYTES
    assert not re.search(r'/tmp/|File \\"/', text), "a folder of the computer that ran it"


def test_a_part_has_its_pages_in_its_menu() -> None:
    (start,) = (section for section in sections() if section.title == "Start")
    text = section_page(start)
    assert "- [Ten questions](questions.md): each with" in text
    assert "\nquestions.md\n" in text.partition("{toctree}")[2]


def test_llms_txt_has_the_source_of_each_page() -> None:
    text = llms_txt("https://docs.example/0.1.0/")
    assert text.startswith("# det_jupyter\n\n> ")
    assert "(https://docs.example/0.1.0/_sources/training.md.txt): trials, data" in text
    assert text.count("\n- [") == sum(len(section.items) for section in sections())


def test_versions_are_the_folders_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "broken").mkdir()
    newest, oldest = switcher(tmp_path, "https://docs.example/")
    assert newest == {
        "name": "0.10.0",
        "version": "0.10.0",
        "url": "https://docs.example/0.10.0/",
        "preferred": True,
    }
    assert oldest["version"] == "0.9.0"
    assert oldest["preferred"] is False


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_docstrings(package: str) -> None:
    module = importlib.import_module(package)
    names = public_names(package)
    assert names
    assert [name for name in names if not inspect.getdoc(getattr(module, name))] == []


@pytest.mark.parametrize("name", HANDLES)
def test_handles_of_the_reference_exist(name: str) -> None:
    module, _, handle = name.rpartition(".")
    assert inspect.isclass(getattr(importlib.import_module(f"det_jupyter.{module}"), handle))
