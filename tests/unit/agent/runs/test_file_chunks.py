"""What is cut from the files of ranks: whole lines, every byte once."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from det_jupyter.agent.runs import file_chunks
from det_jupyter.agent.runs.file_chunks import Stream, end_of_lines


def make_stream(
    path: Path, content: bytes, *, is_journal: bool = False, offset: int = 0
) -> Stream:
    path.write_bytes(content)
    return Stream(
        allocation_id="1.1.1", name="output-0", path=path, is_journal=is_journal, offset=offset
    )


def sent(stream: Stream, *, is_final: bool) -> list[tuple[int, int, str]]:
    chunks = stream.chunks(is_final=is_final)
    return [(chunk.offset, chunk.size_bytes, chunk.text) for chunk in chunks]


@pytest.mark.parametrize(
    ("data", "is_full", "is_final", "end"),
    [
        (b"", False, True, 0),
        (b"one\ntwo\nthr", False, False, 8),
        (b"thr", False, False, 0),
        (b"thr", False, True, 3),
        (b"one\nthr", False, True, 4),
        (b"abcd", True, False, 4),
        ("abc\u00e9".encode()[:4], True, False, 3),  # the second byte has not come
        ("abc\u20ac".encode()[:5], True, False, 3),
        (b"\x80\x80\x80\x80\x80\x80", True, False, 6),  # no character begins anywhere
        ("a\u00e9".encode(), True, False, 1),
        ("abc\U0001f600".encode()[:6], True, False, 3),
        ("abc\U0001f600".encode(), True, False, 3),  # its end is not looked for
        ("\U0001f600".encode(), True, False, 4),  # else nothing would be sent
    ],
)
def test_lines_end_where_they_should(data: bytes, is_full: bool, is_final: bool, end: int) -> None:
    assert end_of_lines(data, is_full=is_full, is_final=is_final) == end


def test_last_line_without_an_end_is_sent_with_one_when_the_rank_is_gone(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "output", b"one\nlast")
    assert sent(stream, is_final=False) == [(0, 4, "one\n")]
    assert sent(stream, is_final=True) == [(0, 4, "one\n"), (4, 4, "last\n")]


def test_a_line_that_is_being_rewritten_is_sent_up_to_its_last_carriage_return(
    tmp_path: Path,
) -> None:
    stream = make_stream(tmp_path / "output", b"one\n\r 10%\r 20%")

    def parts(*, is_final: bool = False, with_bar: bool = True) -> list[str]:
        return [chunk.text for chunk in stream.chunks(is_final=is_final, with_bar=with_bar)]

    assert parts(with_bar=False) == ["one\n"]
    assert parts() == ["one\n\r 10%\r"]
    stream.offset = 10
    assert parts() == []
    assert parts(is_final=True) == [" 20%\n"]


def test_each_piece_of_output_is_a_line_but_for_a_bar_that_is_still_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_chunks, "CHUNK_BYTES", 4)
    stream = make_stream(tmp_path / "output", b"abcdef")
    assert sent(stream, is_final=False) == [(0, 4, "abcd\n")]
    stream = make_stream(tmp_path / "output", b"5%\r")
    assert sent(stream, is_final=True) == [(0, 3, "5%\r\n")]
    assert [chunk.text for chunk in stream.chunks(is_final=False, with_bar=True)] == ["5%\r"]


def test_bars_that_fill_a_chunk_are_cut_where_they_are_rewritten() -> None:
    data = b"\r 10%\r 20%\r 30"
    assert end_of_lines(data, is_full=True, is_final=False) == 11


def test_bars_below_one_another_are_cut_where_the_cursor_is_at_the_first() -> None:
    data = b"one\n\router 0%\n\rinner 5%\x1b[A\n\rinner 9%\x1b[A\n\rinner"

    def sent(data: bytes, *, with_bar: bool) -> bytes:
        return data[: end_of_lines(data, is_full=False, is_final=False, with_bar=with_bar)]

    assert sent(data, with_bar=False) == b"one\n"
    assert sent(data, with_bar=True) == data.removesuffix(b"\n\rinner")
    after = b"\n\rinner 9%\x1b[A\router 100%\nend\n\rnext"
    assert sent(after, with_bar=True) == after.removesuffix(b"end\n\rnext")
    assert sent(after, with_bar=False) == b""  # it waits for its turn


def test_torn_record_of_a_dead_rank_is_never_sent(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "journal", b'{"a":1}\n{"b"', is_journal=True)
    assert sent(stream, is_final=True) == [(0, 8, '{"a":1}\n')]


def test_record_longer_than_a_chunk_travels_whole(tmp_path: Path) -> None:
    record = b'"' + b"x" * (3 * file_chunks.CHUNK_BYTES) + b'"\n'
    stream = make_stream(tmp_path / "journal", record + b"{}\n", is_journal=True)
    assert [(offset, size) for offset, size, _ in sent(stream, is_final=False)] == [
        (0, len(record) + 3)
    ]


def test_record_that_no_request_could_carry_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = file_chunks.MAX_RECORD_BYTES + 10
    stream = make_stream(tmp_path / "journal", b"x" * long + b"\n{}\n", is_journal=True)
    assert sent(stream, is_final=False) == [
        (0, file_chunks.MAX_RECORD_BYTES, "\n"),
        (file_chunks.MAX_RECORD_BYTES, 14, "x" * 10 + "\n{}\n"),
    ]
    assert "a record of over 8388608 bytes is skipped" in caplog.text


def test_bytes_that_are_not_text_count_as_they_lie_in_the_file(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "output", b"\xff\xfe\nok\n")
    assert sent(stream, is_final=False) == [(0, 6, "\ufffd\ufffd\nok\n")]


def test_stream_goes_on_from_the_offset_that_the_master_said(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "output", b"one\ntwo\n", offset=4)
    assert sent(stream, is_final=False) == [(4, 4, "two\n")]


def test_file_that_does_not_exist_yet_has_nothing_to_send(tmp_path: Path) -> None:
    stream = Stream(
        allocation_id="1.1.1", name="output-0", path=tmp_path / "none", is_journal=False
    )
    assert sent(stream, is_final=True) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.lists(st.sampled_from([b"a", b"\n", "\u00e9".encode(), b"\xff", b"bcd"])).map(
        b"".join
    ),
    chunk_bytes=st.integers(1, 9),
)
def test_every_byte_of_output_is_sent_once(
    tmp_path: Path, content: bytes, chunk_bytes: int
) -> None:
    stream = make_stream(tmp_path / "output", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_chunks, "CHUNK_BYTES", chunk_bytes)
        position = 0
        for offset, size_bytes, text in sent(stream, is_final=True):
            assert offset == position
            assert 0 < size_bytes <= chunk_bytes
            assert text.endswith("\n")
            position += size_bytes
    assert position == len(content)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_chunks, "MAX_BACKLOG_BYTES", 1000)
    monkeypatch.setattr(file_chunks, "_KEPT_BACKLOG_BYTES", 100)
    monkeypatch.setattr(file_chunks, "_KEPT_BYTES", 16 * 4096)
    monkeypatch.setattr(file_chunks, "_HOLE_BYTES", 4096)


def test_of_output_that_comes_too_fast_a_part_is_left_out_and_a_line_says_so(
    tmp_path: Path, small_bounds: None
) -> None:
    path = tmp_path / "output-0"
    lines = "".join(f"line {i:04}\n" for i in range(200))  # of 10 bytes
    stream = make_stream(path, lines.encode())
    stream.offset = 500
    assert len([*stream.chunks(is_final=False)]) == 2
    stream.offset = 1000
    (whole,) = stream.chunks(is_final=False)  # as much as may wait
    assert whole.size_bytes == 1000
    stream.offset = 500
    gap, rest = stream.chunks(is_final=False)
    assert (gap.offset, gap.size_bytes) == (500, 1410)
    assert gap.text == (
        "… 1,410 bytes that this rank printed are left out here: it printed them faster than they "
        "could be stored\n"
    )
    assert (rest.offset, rest.size_bytes) == (1910, 90)
    assert rest.text.startswith("line 0191\n")


def test_a_journal_is_sent_whole_however_long(tmp_path: Path, small_bounds: None) -> None:
    path = tmp_path / "journal-0"
    lines = "".join(f"line {i:04}\n" for i in range(200))
    stream = make_stream(path, lines.encode(), is_journal=True)
    assert sum(chunk.size_bytes for chunk in stream.chunks(is_final=False)) == 2000
    stream.offset = 2000
    stream.free()
    assert stream.freed == 0


@pytest.mark.skipif(sys.platform != "linux", reason="holes are made on Linux only")
def test_what_was_sent_long_ago_uses_no_space(tmp_path: Path, small_bounds: None) -> None:
    path = tmp_path / "output-0"
    stream = make_stream(path, b"x" * 100 * 4096)
    stream.offset = 90 * 4096
    stream.free()
    assert path.stat().st_size == 100 * 4096
    assert 512 * path.stat().st_blocks <= 26 * 4096
    assert path.read_bytes()[74 * 4096 :] == b"x" * 26 * 4096
    stream.free()  # again: no effect
    path.unlink()
    stream.offset = 100 * 4096
    stream.free()  # taken away meanwhile


def test_space_is_freed_in_pieces_that_are_large_enough(
    tmp_path: Path, small_bounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(file_chunks, "make_hole", lambda path, size: made.append(size))
    stream = make_stream(tmp_path / "output-0", b"")
    for pages in (16.5, 17, 17.5, 17.75, 18, 20):
        stream.offset = int(pages * 4096)
        stream.free()
    assert [size / 4096 for size in made] == [1, 2, 4]


@pytest.mark.skipif(sys.platform != "linux", reason="holes are made on Linux only")
def test_a_hole_may_be_larger_than_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "output-0"
    with path.open("wb") as file:
        file.seek(1 << 32)
        file.write(b"x" * 8192)
    file_chunks.make_hole(path, (1 << 32) + 4096)
    with path.open("rb") as file:
        file.seek(1 << 32)
        assert file.read() == bytes(4096) + b"x" * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="holes are made on Linux only")
def test_a_file_that_can_have_no_hole_says_why_and_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="/dev/null") as raised:
        file_chunks.make_hole(Path("/dev/null"), 4096)
    assert raised.value.errno in (errno.ENODEV, errno.ESPIPE, errno.EOPNOTSUPP)
    assert len(os.listdir("/proc/self/fd")) == num
    monkeypatch.setattr(file_chunks, "_fallocate", lambda: None)  # as on macOS
    with pytest.raises(OSError, match="/dev/null") as raised:
        file_chunks.make_hole(Path("/dev/null"), 4096)
    assert raised.value.errno == errno.ENOTSUP
