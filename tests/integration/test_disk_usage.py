"""What takes the room of the data folder, and freeing what nothing refers to."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from det_jupyter.agent.starting.zygote_process import start_zygote
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.contract.trial.captured import code_key
from det_jupyter.master.background.disk_usage import Known, free, known_of, measure, usage_of
from det_jupyter.storage import open_storage
from tests.integration.agent_support import ROOT, STAND_IN
from tests.integration.master_support import (
    Bench,
    gang_started,
    make_chunk,
    make_request,
    started,
)

NOW = 10**9 + 0.0
OLD = NOW - 7200
CAPSULE = Capsule(entrypoint="Digits", payload="a" * 64, sources="b" * 64)
KB = 1024


def put(path: Path, kilobytes: int = 8, at: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * 4 * kilobytes)
    os.utime(path, (at, at))
    return path


def known(elsewhere: Path) -> Known:
    return Known(
        names={3: "wide"},
        checkpoints={"u3": 3, "v3": 3, "u2": 2},
        last_id=4,
        capsules=[CAPSULE],
        blobs=frozenset([CAPSULE.payload or "", CAPSULE.sources]),
        codes=frozenset([code_key(CAPSULE)]),
        locations=frozenset([str(elsewhere)]),
    )


def paths_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def fill(data: Path, elsewhere: Path) -> None:
    put(data / "det.sqlite3", 40)
    put(data / "reserve", 4)
    put(data / "checkpoints/u3/state_dict.pt", 100)
    put(elsewhere / "v3/state_dict.pt", 60)
    put(elsewhere / "mine/precious.pt")  # the user's own
    put(data / "checkpoints/.part-x/state_dict.pt", 12)  # of a rank that was killed
    put(data / "checkpoints/orphan/state_dict.pt")
    fenced = put(elsewhere / "w3/state_dict.pt", 16)  # its run was given up
    (fenced.parent / "metadata.json").write_text('{"uuid": "w3", "experiment_id": 3}')
    (elsewhere / "mine/metadata.json").write_text('{"uuid": "w3", "experiment_id": 3}')
    for checkpoint in (elsewhere / "w3", elsewhere / "mine"):
        os.utime(checkpoint, (OLD, OLD))
    put(data / "runs/3.5.1/journal-0")
    put(data / "runs/2.4.1/journal-0", 16)  # experiment 2 was deleted
    put(data / "runs/9.9.1/journal-0")  # of a number that was never given
    put(data / "traces/2/a.json", 20)
    put(data / "tensorboard/3/events")
    put(data / "blobs/aa" / ("a" * 64))
    put(data / "blobs/cc" / ("c" * 64), 24)
    put(data / "blobs/dd" / ("d" * 64), at=NOW - 60)  # it may be of a submission that comes
    put(data / "logs/master.log")
    put(data / "logs/master.log.1", 4)
    put(data / "logs/zygote-7.out", 4, at=NOW - 90_000)
    put(data / "logs/zygote-8.out", 4, at=NOW - 60)
    for folder, _, _ in os.walk(data / "blobs"):
        os.utime(folder, (OLD, OLD))
    used = code_key(CAPSULE)
    for name, kilobytes, at in (("gone", 12, OLD), (used, 16, OLD), ("new", 4, NOW - 60)):
        os.utime(put(data / "code" / name / "module.py", kilobytes).parent, (at, at))


def test_what_takes_the_room_is_listed_largest_first(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    fill(data, elsewhere)
    uses = measure(known(elsewhere), data, NOW)
    assert [use.num_bytes for use in uses] == sorted((u.num_bytes for u in uses), reverse=True)
    found = {(u.kind, u.folder, u.experiment_id): (u.num_bytes, u.safe_bytes) for u in uses}
    assert found == {
        ("checkpoints", str(data / "checkpoints"), 3): (100 * KB, 0),
        ("checkpoints", str(elsewhere), 3): (60 * KB, 0),
        ("database", str(data), None): (40 * KB, 0),
        ("blobs", str(data / "blobs"), None): (40 * KB, 24 * KB),
        ("code", str(data / "code"), None): (32 * KB, 12 * KB),
        ("leftovers", str(data / "traces"), None): (20 * KB, 20 * KB),
        ("logs", str(data / "logs"), None): (20 * KB, 8 * KB),
        ("unrecorded", str(elsewhere), 3): (20 * KB, 0),
        ("leftovers", str(data / "runs"), None): (16 * KB, 16 * KB),
        ("leftovers", str(data / "checkpoints"), None): (12 * KB, 12 * KB),
        ("other", str(data / "checkpoints"), None): (8 * KB, 0),
        ("runs", str(data / "runs"), 3): (8 * KB, 0),
        ("runs", str(data / "runs"), 9): (8 * KB, 0),
        ("tensorboard", str(data / "tensorboard"), 3): (8 * KB, 0),
        ("reserve", str(data), None): (4 * KB, 0),
    }
    assert {use.name for use in uses} == {"wide", ""}


def test_only_what_nothing_refers_to_is_freed(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    fill(data, elsewhere)
    before = paths_below(tmp_path)
    safe = sum(use.safe_bytes for use in measure(known(elsewhere), data, NOW))
    freed = free(known(elsewhere), data, NOW)
    assert freed.problems == []
    assert (freed.num_bytes, freed.num_files) == (safe, 7)
    assert before - paths_below(tmp_path) == {
        "data/checkpoints/.part-x/state_dict.pt",
        "data/runs/2.4.1/journal-0",
        "data/traces/2/a.json",
        f"data/blobs/cc/{'c' * 64}",
        "data/code/gone/module.py",
        "data/logs/master.log.1",
    }
    assert (data / "logs/zygote-7.out").stat().st_size == 0  # emptied: it may be open
    assert free(known(elsewhere), data, NOW).num_files == 0
    assert sum(use.safe_bytes for use in measure(known(elsewhere), data, NOW)) == 0


@pytest.mark.parametrize("end", ["", ".1"])
def test_link_in_the_folder_of_logs_harms_no_file_elsewhere(tmp_path: Path, end: str) -> None:
    data, precious = tmp_path / "data", put(tmp_path / "precious", at=NOW - 90_000)
    (data / "logs").mkdir(parents=True)
    (data / f"logs/zygote-7.out{end}").symlink_to(precious)
    os.utime(data / f"logs/zygote-7.out{end}", (OLD, OLD), follow_symlinks=False)
    free(known(tmp_path / "elsewhere"), data, NOW)
    assert precious.stat().st_size == 8 * KB


def test_idle_fork_server_goes_on_writing_its_log_after_it_was_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light_torch: None
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    lifeline, write_end = os.pipe()
    started = start_zygote(sys.executable, lifeline_fd=lifeline, target=STAND_IN)
    try:
        with started.connection.makefile("rb") as lines:
            assert b"warmup_s" in lines.readline()
        put(started.log, at=NOW - 90_000)  # what it has printed until the day before
        freed = free(known(tmp_path / "elsewhere"), paths.data_dir(), NOW)
        assert (freed.num_bytes, freed.num_files, freed.problems) == (8 * KB, 1, [])
        assert started.log.stat().st_size == 0
        started.connection.sendall(b"no request\n")  # it ends with a traceback
        started.process.wait()
        assert b"no request" in started.log.read_bytes()
    finally:
        started.connection.close()
        started.process.kill()
        started.process.wait()
        os.close(lifeline)
        os.close(write_end)


def test_checkpoint_that_a_rank_is_writing_stays(tmp_path: Path) -> None:
    draft = open_storage(None, tmp_path).begin("u9")
    put(draft.path / "state_dict.pt")
    assert free(known(tmp_path / "elsewhere"), tmp_path, NOW).num_files == 0
    assert (draft.path / "state_dict.pt").exists()
    draft.discard()


def test_a_file_with_several_names_is_counted_once(tmp_path: Path) -> None:
    path = put(tmp_path / "blobs/aa" / ("a" * 64), 40)
    for name in ("b", "c", "d"):
        os.link(path, path.with_name(name))
    (use,) = measure(known(tmp_path / "elsewhere"), tmp_path, NOW)
    assert (use.num_bytes, use.num_files) == (40 * KB, 4)


def test_everything_that_the_state_refers_to_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    bench = Bench(paths.data_dir() / "det.sqlite3")
    bench.register()
    secret = BlobStore(paths.data_dir() / "blobs").put(b'{"salt": "", "values": {}}')
    for number, changes in enumerate(({"environment": secret}, {"payload": "c" * 64}), 1):
        request = make_request(checkpoint_storage={"host_path": f"/share{number}"})
        capsule = request.capsule.model_copy(update=changes)
        asyncio.run(bench.service.submit(request.model_copy(update={"capsule": capsule})))
    saved = CheckpointSaved(
        at=1.0, uuid="u1", steps_completed=5, path="/share1/u1", size_bytes=1, metadata={}
    )
    bench.report(gang_started(), make_chunk([started(), saved]))
    asyncio.run(bench.service.submit(make_request(name="without a folder")))
    found = known_of(bench.service)
    names = {1: "Trial", 2: "Trial", 3: "without a folder"}
    assert (found.names, found.last_id) == (names, 3)
    assert found.checkpoints == {"u1": 1}
    assert found.blobs == {"0" * 64, "c" * 64, secret}
    assert found.locations == {"/share1", "/share2"}
    assert len(found.codes) == 1
    assert usage_of(bench.service, found).uses[0].kind == "database"
    bench.service.close()
