"""Prefixes of lines, whatever the bytes and however they arrive."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.launch.copies import MAX_HELD_BYTES, Prefixer

PREFIX = b"[rank=1] "


def prefixed(*parts: bytes) -> bytes:
    lines = Prefixer(PREFIX)
    return b"".join([*(lines.feed(part) for part in parts), lines.flush()])


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (b"one\ntwo\n", b"[rank=1] one\n[rank=1] two\n"),
        (b"no line end", b"[rank=1] no line end"),
        (b"\n", b"[rank=1] \n"),
        (b"windows\r\n", b"[rank=1] windows\r\n"),
        (b"\r 10%\r 20%\n", b"\r[rank=1]  10%\r[rank=1]  20%\n"),  # tqdm
        (b"\xff\xfe \xc3\n", b"[rank=1] \xff\xfe \xc3\n"),
        (b"", b""),
    ],
)
def test_each_line_gets_the_prefix_and_stays_as_it_is(printed: bytes, expected: bytes) -> None:
    assert prefixed(printed) == expected


@given(st.lists(st.text("\r\na", max_size=6).map(str.encode)))
def test_how_the_bytes_arrive_makes_no_difference(parts: list[bytes]) -> None:
    assert prefixed(*parts) == prefixed(b"".join(parts))


@given(st.binary())
def test_no_byte_is_lost(printed: bytes) -> None:
    assert re.sub(rb"\[rank=1\] ", b"", prefixed(printed)) == re.sub(rb"\[rank=1\] ", b"", printed)


def test_a_multibyte_character_that_arrives_in_two_parts_stays_whole() -> None:
    first, second = "häß".encode()[:2], "häß".encode()[2:]
    assert prefixed(first, second).decode() == "[rank=1] häß"


def test_a_line_is_held_until_it_ends_but_not_without_bound() -> None:
    lines = Prefixer(PREFIX)
    assert lines.feed(b"half ") == b""
    assert lines.holds
    assert lines.feed(b"line\n") == b"[rank=1] half line\n"
    long = b"x" * (MAX_HELD_BYTES + 1)
    assert lines.feed(long) == PREFIX + long
    assert lines.feed(b"end\n") == b"end\n"
    assert lines.feed(b"next\n") == b"[rank=1] next\n"
