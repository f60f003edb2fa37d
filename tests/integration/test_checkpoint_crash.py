"""A chief that is killed at any moment of saving leaves the older checkpoint whole."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from det_jupyter.contract.host import paths
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import CheckpointContext, DistributedContext, RecordList
from det_jupyter.pytorch import PyTorchCallback, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints import saver as saving
from det_jupyter.pytorch.checkpoints.restore import read_state
from det_jupyter.pytorch.checkpoints.training_state import STATE_FILE, Parts
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.storage import METADATA_FILE, CheckpointStorage
from det_jupyter.storage.buckets.storage import BucketStorage, copies_dir
from det_jupyter.storage.directory import DirectoryStorage
from det_jupyter.storage.kinds import open_storage
from tests.bucket_keys import KEYS
from tests.bucket_server import BucketServer
from tests.integration.bucket_support import bucket, server
from tests.integration.parallel_ranks import RankRunner
from tests.integration.stored import stored

__all__ = ["bucket", "server"]  # fixtures

MOMENTS = ["half", "before the sync", "training", "callbacks", "before the commit"]


class Chief:
    """Saves one checkpoint in peace, begins another, tells when it is at the moment, and waits.

    Args:
        location: Where the checkpoints are.
        moment: One of MOMENTS.
        told: A pipe, for the names of the checkpoints and for "there".
    """

    def __init__(self, location: str, moment: str, told: int) -> None:
        self._location, self._moment, self._told = location, moment, told
        self._is_armed = False

    def say(self, text: str) -> None:
        os.write(self._told, f"{text}\n".encode())  # of two threads, whole lines

    def reach(self, moment: str) -> None:
        if self._is_armed and moment == self._moment:
            self.say("there")
            time.sleep(120)

    def save(self) -> None:
        chief, module, rename, ask = self, cast(Any, saving), Path.rename, BucketStorage._ask
        write = module.write_state

        class Callback(PyTorchCallback):
            def on_checkpoint_write_end(self, path: Path) -> None:
                chief.reach("callbacks")

        def half_written(path: Path, state: Any, before: str) -> None:
            if self._is_armed and self._moment == "half":
                (path / STATE_FILE).write_bytes(b"half of it")
                self.reach("half")
            write(path, state, before)
            self.reach("before the sync")

        def renamed(path: Path, target: Path) -> Path:
            self.reach("before the commit")
            return rename(path, target)

        def asked(storage: BucketStorage, call: str, uuid: str, **given: Any) -> Any:
            if call == "commit":
                self.reach("before the commit")
            return ask(storage, call, uuid, **given)

        module.write_state = half_written
        Path.rename = renamed  # type: ignore[assignment, method-assign]  # in a fork of its own
        BucketStorage._ask = asked  # type: ignore[assignment, method-assign]
        distributed = DistributedContext()
        context = PyTorchTrialContext(distributed=distributed, device=torch.device("cpu"))
        model: Any = context.wrap_model(nn.Linear(4, 4))
        nn.init.constant_(model.weight, 1.0)
        parts = Parts(context=context, callbacks=Callbacks({"own": Callback()}))
        own = open_storage(self._location, Path())
        storage = CheckpointContext(own, RecordList(), distributed, {})
        saver = saving.Saver(storage, parts, Origin(trial_class="m:T"))
        self.say(saver.begin(steps_completed=1))
        saver.finish()
        self._is_armed = True
        nn.init.constant_(model.weight, 2.0)
        self.say(saver.begin(steps_completed=2))
        if self._moment == "training":
            nn.init.constant_(model.weight, 3.0)
            self.reach("training")
        saver.finish()


def kill_chiefs(
    _: DistributedContext, variables: dict[str, str], chiefs: dict[str, str]
) -> list[list[str]]:
    """Fork a chief for each moment and its location, kill it then; return what each has told."""
    os.environ.update(variables)
    return [kill_a_chief(location, moment) for moment, location in chiefs.items()]


def kill_a_chief(location: str, moment: str) -> list[str]:
    reads, writes = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            Chief(location, moment, writes).save()
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as told:
        lines = [told.readline().strip() for _ in range(3)]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return lines


def test_a_chief_killed_at_any_moment_of_saving_leaves_the_older_checkpoint_whole(
    run: RankRunner, tmp_path: Path
) -> None:
    storages = {moment: DirectoryStorage(tmp_path / moment) for moment in MOMENTS}
    for moment, first in crash(run, storages, {}).items():
        with stored(storages[moment], "next") as path:
            (path / STATE_FILE).write_bytes(b"")
        names = [path.name for path in (tmp_path / moment).iterdir()]
        assert sorted(names) == sorted([first, "next"]), moment


def test_a_chief_killed_while_saving_to_a_bucket_leaves_the_older_checkpoint_whole(
    run: RankRunner, bucket: BucketServer
) -> None:
    storage = BucketStorage(bucket.location)
    variables = {name: os.environ[name] for name in (*KEYS, "HOME", paths.HOME_VARIABLE)}
    moments = ("half", "training", "before the commit")
    firsts = crash(run, dict.fromkeys(moments, storage), variables).values()
    storage.remove_leftovers()
    assert list(copies_dir(paths.data_dir()).iterdir()) == []
    done = [name for name in bucket.objects() if name.endswith(METADATA_FILE)]
    assert sorted(done) == sorted(f"{first}/{METADATA_FILE}" for first in firsts)


def crash(
    run: RankRunner, storages: Mapping[str, CheckpointStorage], variables: dict[str, str]
) -> dict[str, str]:
    """Kill a chief at each moment; return the older checkpoints, which are checked."""
    chiefs = {moment: storage.location for moment, storage in storages.items()}
    (told,) = run(kill_chiefs, 1, variables, chiefs)
    return {
        moment: older_checkpoint(storages[moment], lines)
        for moment, lines in zip(chiefs, told, strict=True)
    }


def older_checkpoint(storage: CheckpointStorage, lines: list[str]) -> str:
    assert "there" in lines
    first, second = (str(line) for line in lines if line != "there")
    with storage.reading(first) as folder:
        state = read_state(folder)
    assert torch.equal(state["models"][0]["weight"], torch.ones(4, 4))
    assert storage.files(second) == {}
    return first
