"""Where files are: every place is below this home, and private."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir, append_to_journal, run_dir
from det_jupyter.contract.messages import Cut
from det_jupyter.contract.schema.hyperparameters import is_nested, is_range, ranges_in_lists
from det_jupyter.contract.values.device_memory import DeviceHolder, DeviceShortage

GB = 10**9


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def test_files_of_master_and_user_have_their_places(home: Path) -> None:
    runtime, data = home / "runtime", home / "data"
    assert paths.console_file("1.1.1", 2) == runtime / "consoles" / "1.1.1-rank-2.json"
    assert stat.S_IMODE(paths.consoles_dir().stat().st_mode) == 0o700
    assert paths.master_file() == runtime / "master.json"
    assert paths.reader_log() == data / "logs" / "reader.log"
    files = [paths.pools_file(), paths.alerts_file(), paths.trackers_file()]
    assert [file.parent for file in files] == [data] * 3
    assert len({*files}) == 3


def test_files_of_a_run_have_their_ranks_in_their_names(tmp_path: Path) -> None:
    run = run_dir(tmp_path, "1.1.1")
    assert run == RunDir(tmp_path / "runs" / "1.1.1")
    names = [
        run.output(1).name, run.journal(1).name, run.recorder(1).name, run.stacks(1).name,
        run.stacks(1, 7).name, run.connection_file(1).name, run.control.name, run.plan.name,
    ]  # fmt: skip
    assert names == [
        "output-1", "journal-1", "recorder-1", "stacks-1", "stacks-1.7", "kernel-1.json",
        "control", "plan.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"new\n"),
        (b"a\nlast\n", b"a\nlast\nnew\n"),
        (b"a\nla", b"a\nla\nnew\n"),  # its rank was killed while it wrote
        (b"a\n\nx", b"a\n\nx\nnew\n"),
    ],
)
def test_what_another_process_journals_begins_on_a_line_of_its_own(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    journal = tmp_path / "journal-0"
    journal.write_bytes(before)
    append_to_journal(journal, "new\n")
    assert journal.read_bytes() == after


def test_two_computers_that_do_not_reach_each_other_are_named() -> None:
    cut = Cut(from_agent="a", to_agent="b", why="no answer at 10.0.0.5 port 7")
    assert cut.pair == {"a", "b"}
    assert cut.sentence == (
        "cannot reach the computer of agent b from that of agent a: no answer at 10.0.0.5 port 7"
    )


@pytest.mark.parametrize(
    ("spec", "nested", "is_drawn"),
    [
        ({"type": "log", "minval": -3, "maxval": 0}, False, True),
        ({"type": "const", "val": 1}, False, False),
        ({"type": "other"}, False, False),
        ({"depth": 1}, True, False),
        ({}, True, False),
        ([1], False, False),
        ("log", False, False),
    ],
)
def test_ranges_are_told_from_constants_and_from_what_contains_others(
    spec: object, nested: bool, is_drawn: bool
) -> None:
    assert (is_nested(spec), is_range(spec)) == (nested, is_drawn)


def test_ranges_in_a_list_are_found_with_their_places() -> None:
    drawn = {"type": "int", "minval": 1, "maxval": 3}
    spec = [1, drawn, {"net": {"depth": drawn, "width": [drawn, 2]}}, {"type": "const", "val": 1}]
    assert [*ranges_in_lists(spec, "hp")] == [
        ("hp[1]", drawn), ("hp[2].net.depth", drawn), ("hp[2].net.width[0]", drawn),
    ]  # fmt: skip
    assert [*ranges_in_lists(drawn, "hp")] == []


@pytest.mark.parametrize(
    ("facts", "held", "remedies"),
    [
        (
            {"used": 60 * GB, "allocated": 50 * GB, "reserved": 51 * GB},
            "this rank's tensors 50 GB, its CUDA context and other processes 9.0 GB",
            "smaller batches with aggregation_frequency, mixed_precision, sharding",
        ),
        (
            {"used": 78 * GB, "allocated": 50 * GB, "reserved": 70 * GB, "batch_size": 32},
            "this rank's tensors 50 GB, reserved by its allocator and not in use 20 GB, its CUDA "
            "context and other processes 8.0 GB",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, smaller batches (32 records per "
            "rank now) with aggregation_frequency, mixed_precision, sharding",
        ),
        (
            {
                "used": 79 * GB, "allocated": 40 * GB, "reserved": 40 * GB,
                "others": (DeviceHolder(pid=7, name="python", num_bytes=38 * GB),),
            },
            "this rank's tensors 40 GB, python (pid 7) 38 GB, its CUDA context 1.0 GB",
            "ending the other processes (7), smaller batches with aggregation_frequency, "
            "mixed_precision, sharding",
        ),
        (
            {"used": 79 * GB, "allocated": 40 * GB, "reserved": 40 * GB},
            "this rank's tensors 40 GB, its CUDA context and other processes 39 GB",
            "ending the other processes, smaller batches with aggregation_frequency, "
            "mixed_precision, sharding",
        ),
    ],
)  # fmt: skip
def test_what_held_a_gpus_memory_is_told_with_what_to_try(
    facts: dict[str, object], held: str, remedies: str
) -> None:
    shortage = DeviceShortage(total=80 * GB, **facts)  # type: ignore[arg-type]
    assert str(shortage) == f"of 80 GB: {held}; try {remedies}"
