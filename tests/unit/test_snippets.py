"""Code blocks of README and docs: what a test without a master can say about them.

Those in Python run in tests/e2e/test_snippets.py.
"""

from __future__ import annotations

import re
import tomllib

import pytest

from det_jupyter.config import parse_config, read_yaml
from det_jupyter.errors import ConfigError
from tests.snippets import ROOT, Snippet, snippets
from tests.unit.test_pages import _SHELL_LINE

LANGUAGES = {"python", "yaml", "sh"}
NO_CODE = {"", "text", "mermaid"}  # outputs, lines for a cell, pictures
_INSTALL = re.compile(r"pip install ('det-jupyter\[[\w,]+\]' ?)+|pip install det-jupyter[\w-]*")
# What is only in files of the data folder, beside the keys of a configuration.
_BASE = {
    "entrypoint": "DigitsTrial",
    "searcher": {"name": "single", "metric": "accuracy", "max_length": {"epochs": 6}},
    "hyperparameters": {"global_batch_size": 64},
}


def place_of(snippet: Snippet) -> str:
    return snippet.place


def test_each_block_has_a_language_that_is_tested_or_is_no_code() -> None:
    found = {each.language for each in snippets()}
    assert found <= LANGUAGES | NO_CODE
    assert all(snippets(language) for language in LANGUAGES)


@pytest.mark.parametrize("snippet", [each for each in snippets() if each.why_not], ids=place_of)
def test_files_that_run_a_marked_block_in_its_place_exist(snippet: Snippet) -> None:
    assert len(snippet.why_not.split()) > 2
    for name in re.findall(r"tests/[\w/]+\.py", snippet.why_not):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    "snippet", [each for each in snippets("yaml") if not each.why_not], ids=place_of
)
def test_yaml_is_a_configuration(snippet: Snippet) -> None:
    """Sections alone are laid over one that is whole."""
    text = re.sub(r"^%%\w+.*\n", "", snippet.text)
    try:
        parse_config(_BASE | read_yaml(text).document, default_seed=1)
    except ConfigError as error:
        pytest.fail(f"{snippet.place}: {error}")


@pytest.mark.parametrize(
    "snippet", [each for each in snippets("sh") if not each.why_not], ids=place_of
)
def test_lines_for_a_shell_are_of_det_or_install_it(snippet: Snippet) -> None:
    """Lines of `det` are checked by tests/unit/test_pages.py."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for line in snippet.text.splitlines():
        words = line.partition(" #")[0].strip()
        if not words or words.startswith("#") or _SHELL_LINE.match(line):
            continue
        assert _INSTALL.fullmatch(words), f"{snippet.place}: {line}"
        named = re.findall(r"\[([\w,]+)\]", words)
        assert {name for each in named for name in each.split(",")} <= {*extras}
