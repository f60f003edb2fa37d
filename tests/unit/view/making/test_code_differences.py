"""What differs between configurations and between sources, whose cells change their numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.view.making.comparison_view import differing, source_differences


def pairs(before: dict[str, str], after: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return each name with the lines that are added or gone."""
    return [
        (name, [line for line in lines[2:] if line[:1] in "+-"])
        for name, lines in source_differences(before, after)
    ]


def test_values_are_told_by_dotted_key_and_none_where_there_is_none() -> None:
    documents: list[dict[str, Any]] = [
        {"a": {"b": 1, "c": 2}, "d": [1, 2]},
        {"a": {"b": 1, "c": 3}},
        {"a": {"b": 1}, "e": False},
    ]
    assert differing(documents) == {
        "a.c": [2, 3, None],
        "d": [[1, 2], None, None],
        "e": [None, None, False],
    }
    assert differing([]) == differing(documents[:1]) == {}


leaves = st.one_of(st.integers(0, 3), st.booleans(), st.text("ab", max_size=2))
flat = st.dictionaries(st.text("abc", min_size=1, max_size=2), leaves, max_size=5)


@given(flat, flat)
def test_just_the_keys_whose_values_differ_are_told(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    keys = {key for key in one | other if one.get(key) != other.get(key)}
    assert differing([one, other]) == {key: [one.get(key), other.get(key)] for key in keys}
    assert differing([one, one]) == {}


def test_modules_are_compared_by_their_paths() -> None:
    before = {"a.py": "x = 1\ny = 2", "same.py": "z", "gone.py": "g"}
    after = {"a.py": "x = 1\ny = 3", "same.py": "z", "new.py": "g"}
    assert pairs(before, after) == [
        ("a.py", ["-y = 2", "+y = 3"]),
        ("gone.py", ["-g"]),
        ("new.py", ["+g"]),
    ]


def test_a_cell_with_another_number_is_no_difference_if_its_text_is_the_same() -> None:
    assert pairs({"Cell In[1]": "x = 1"}, {"Cell In[9]": "x = 1"}) == []


def test_a_cell_is_compared_with_the_one_that_defines_the_same_names() -> None:
    before = {
        "Cell In[1]": "class Net:\n    depth = 1",
        "Cell In[2]": "def load():\n    return 1",
    }
    after = {
        "Cell In[7]": "def load():\n    return 2",
        "Cell In[8]": "class Net:\n    width = 5\n    height = 6",
    }
    assert pairs(before, after) == [
        ("Cell In[1] → Cell In[8]", ["-    depth = 1", "+    width = 5", "+    height = 6"]),
        ("Cell In[2] → Cell In[7]", ["-    return 1", "+    return 2"]),
    ]


def test_a_cell_without_names_is_compared_with_the_most_alike_and_else_with_none() -> None:
    before = {"Cell In[1]": "%time\nrun(1)\nshow()", "Cell In[2]": "print(1)"}
    after = {"Cell In[3]": "other()", "Cell In[4]": "%time\nrun(2)\nshow()"}
    assert pairs(before, after) == [
        ("Cell In[1] → Cell In[4]", ["-run(1)", "+run(2)"]),
        ("Cell In[2]", ["-print(1)"]),
        ("Cell In[3]", ["+other()"]),
    ]


def test_of_two_candidates_each_cell_belongs_to_one() -> None:
    before = {"Cell In[1]": "x = 1", "Cell In[2]": "x = 1\ny = 2"}
    after = {"Cell In[3]": "x = 1\ny = 2", "Cell In[4]": "x = 2"}
    assert pairs(before, after) == [("Cell In[1] → Cell In[4]", ["-x = 1", "+x = 2"])]


def test_a_cell_and_a_module_are_never_one() -> None:
    assert pairs({"Cell In[1]": "x = 1"}, {"a.py": "x = 1"}) == [
        ("Cell In[1]", ["-x = 1"]),
        ("a.py", ["+x = 1"]),
    ]


names = st.sampled_from(["Cell In[1]", "Cell In[2]", "Cell In[3]", "a.py", "b.py"])
texts = st.lists(st.sampled_from(["x = 1", "y = 2", "z()", "%magic"]), min_size=1, max_size=3)
sources = st.dictionaries(names, texts.map("\n".join), max_size=4)


@given(sources, sources)
def test_every_line_is_told_that_one_has_and_the_other_has_not(
    before: dict[str, str], after: dict[str, str]
) -> None:
    told = pairs(before, after)
    removed = [line[1:] for _, lines in told for line in lines if line[0] == "-"]
    added = [line[1:] for _, lines in told for line in lines if line[0] == "+"]
    olds = [line for text in before.values() for line in text.splitlines()]
    news = [line for text in after.values() for line in text.splitlines()]
    for line in {*olds, *news}:
        change = news.count(line) - olds.count(line)
        assert added.count(line) - removed.count(line) == change
    assert pairs(before, before) == []
