"""What `make docs-examples` stores of a notebook's outputs."""

from __future__ import annotations

from nbformat.v4 import new_output

from tests.docs_examples import shown

NAMES = {"/tmp/x1": "~", "vm": "pc"}


def test_pictures_and_text_are_kept_and_widgets_are_not() -> None:
    data = {"text/plain": "on vm, lvm: /tmp/x1/a", "image/png": "A/vm/", "application/x-view": "v"}
    output = shown(new_output("display_data", data, metadata={"isolated": True}), NAMES)
    assert output.data == {"text/plain": "on pc, lvm: ~/a", "image/png": "A/vm/"}
    assert output.metadata == {}


def test_of_a_progress_bar_its_last_state_is_kept() -> None:
    printed = "before\n 0 %\r50 %\r100 %\nafter\r\n"
    assert shown(new_output("stream", text=printed), NAMES).text == "before\n100 %\nafter\r\n"
