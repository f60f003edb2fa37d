"""`adopt`: checkpoints of a storage are listed again, without the database that knew them.

A checkpoint names its experiment and trial, and has their configuration, hyperparameters and code
(contract/trial/origin.py). Each such experiment becomes one that is over. Its files stay where
they are. What is listed here already is left out, so it can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from det_jupyter.client.client import Client
from det_jupyter.client.copying import storage_at
from det_jupyter.client.imports.importing import ENTRYPOINT
from det_jupyter.client.imports.whole_experiments import send_metrics
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    Capsule,
    CheckpointView,
    ImportedCheckpoint,
    ImportedTrial,
    ImportExperiment,
    MoveCheckpoints,
)
from det_jupyter.contract.run.journal import Progress
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.trial.origin import CODE_FOLDER, LOAD_DATA_FILE, Origin
from det_jupyter.contract.values.text import size
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, NotFound
from det_jupyter.storage import (
    METADATA_FILE,
    CheckpointStorage,
    find_checkpoint,
    folder_at,
    path_of,
    read_metadata,
)
from det_jupyter.storage.contract import CheckpointFiles

LABEL = "adopted"
_AT_ONCE = 8  # checkpoints that are read
_READ = (METADATA_FILE, LOAD_DATA_FILE)
_MOST_BYTES = 64 << 20  # of one of these files
_MOST_STEPS = 1 << 53


@dataclass(slots=True, kw_only=True)
class Adopted:
    """What was found in a storage.

    Args:
        location: The storage.
        experiments: How many checkpoints each experiment has got, by its number.
        found_again: Checkpoints that were listed, but not stored any more.
        num_known: How many were listed here already.
        problems: A line for each checkpoint that was left out.
    """

    location: str
    experiments: dict[int, int] = field(default_factory=dict)
    found_again: list[str] = field(default_factory=list)
    num_known: int = 0
    problems: list[str] = field(default_factory=list)


class _Found(NamedTuple):
    """A checkpoint that is whole, its metadata, and where it comes from, if it says that."""

    files: CheckpointFiles
    metadata: dict[str, Any]
    origin: Origin | None

    @property
    def trial_id(self) -> int:
        return self._id("trial_id")

    @property
    def experiment_id(self) -> int:
        return self._id("experiment_id")

    def _id(self, name: str) -> int:
        number = self.metadata.get(name)
        return number if isinstance(number, int) else 0

    @property
    def experiment(self) -> tuple[int, str]:
        """What the checkpoints of one experiment have in common; numbers are those of a master."""
        config = self.origin.config if self.origin is not None else None
        return self.experiment_id, json.dumps(config, sort_keys=True)


def adopt(client: Client, given: str) -> Adopted:
    """List the checkpoints of a storage.

    Args:
        client: Sends requests to the master.
        given: A folder, or the location of a bucket.

    Raises:
        CheckpointError: The storage cannot be read.
        NotFound: It has no checkpoints, or there is no such folder.
    """
    folder = folder_at(given)
    if folder is not None and not folder.is_dir():
        raise NotFound(f"there is no folder {folder} on this computer")
    storage = storage_at(given)
    stored = storage.scan()
    if not stored:
        raise NotFound(f"{storage.location} has no checkpoint")
    result = Adopted(location=storage.location)
    known = {view.uuid: view for view in client.find_checkpoints("*")}
    whole, gone = _sort_out(storage, stored, known, result)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = [each for each in threads.map(lambda one: _read(storage, one, result), whole)]
    experiments: dict[tuple[int, str], list[_Found]] = defaultdict(list)
    for each in filter(None, found):
        experiments[each.experiment].append(each)
    for key, own in sorted(experiments.items()):
        _import(client, storage, key, own, result)
    for uuid in gone:
        try:
            client.change(MoveCheckpoints(uuids=[uuid], location=storage.location, is_lost=True))
            result.found_again.append(uuid)
        except Conflict as error:
            result.problems.append(str(error))
    return result


def _sort_out(
    storage: CheckpointStorage,
    stored: Sequence[CheckpointFiles],
    known: dict[str, CheckpointView],
    result: Adopted,
) -> tuple[list[CheckpointFiles], list[str]]:
    """Return the whole checkpoints that are not listed yet, and those listed but not stored."""
    new, gone = [], []
    for each in stored:
        view = known.get(each.uuid)
        if each.problem:
            result.problems.append(f"{path_of(storage, each.uuid)}: {each.problem}")
        elif view is None:
            new.append(each)
        elif view.path != path_of(storage, each.uuid) and _is_gone(view):
            gone.append(each.uuid)
        else:
            result.num_known += 1
    return new, gone


def _is_gone(view: CheckpointView) -> bool:
    """Return whether a checkpoint that is listed is not where it was stored."""
    if view.state == "DELETED":
        return True
    storage, uuid = find_checkpoint(view.path)
    with suppress(CheckpointError):  # it may be there
        return not storage.files(uuid)
    return False


def _read(storage: CheckpointStorage, files: CheckpointFiles, result: Adopted) -> _Found | None:
    try:
        with storage.reading(files.uuid, _READ.__contains__) as folder:
            for name in _READ:
                path = folder / name
                if path.exists() and path.stat().st_size > _MOST_BYTES:
                    raise CheckpointError(f"its {name} has more than {size(_MOST_BYTES)}")
            metadata = read_metadata(folder)
            if metadata.get("uuid") != files.uuid:
                raise CheckpointError(f"its {METADATA_FILE} is that of {metadata.get('uuid')!r}")
            origin = Origin.read(folder) if (folder / LOAD_DATA_FILE).exists() else None
            _check_types(origin)
    except (CheckpointError, AttributeError) as error:
        result.problems.append(f"{path_of(storage, files.uuid)}: {error}")
        return None
    return _Found(files, metadata, origin)


def _check_types(origin: Origin | None) -> None:
    """Check the fields that are used; a checkpoint is a file of others."""
    given = {} if origin is None else {"config": origin.config, "hparams": origin.hparams}
    strange = [name for name, each in given.items() if not isinstance(each, dict | None)]
    if origin is not None and not isinstance(origin.seed, int | None):
        strange.append("seed")
    if strange or not isinstance((given.get("config") or {}).get("labels"), list | None):
        raise CheckpointError(f"its {LOAD_DATA_FILE} is damaged: {' '.join(strange) or 'labels'}")


def _import(
    client: Client,
    storage: CheckpointStorage,
    key: tuple[int, str],
    own: Sequence[_Found],
    result: Adopted,
) -> None:
    """Make an experiment of its checkpoints, or add them to the one that it has become before."""
    trials: dict[int, list[_Found]] = defaultdict(list)
    for each in sorted(own, key=lambda one: (_steps_of(one), one.files.stored_at)):
        trials[each.trial_id].append(each)
    number, config = key
    named = f"experiment {number}" if number else "checkpoints"
    try:
        request = ImportExperiment(
            key=hashlib.sha256(f"{storage.location} {number} {config}".encode()).hexdigest(),
            source=f"{named} in {storage.location}",
            config=_config(own[0], named),
            capsule=_capsule(client, storage, own[0], f"Adopted from {storage.location}"),
            python=sys.executable,  # continues its training
            cwd=os.getcwd(),
            trials=[_trial(storage, *each) for each in sorted(trials.items())],
        )
        view = client.change(request)
    except ValidationError as error:  # a number that is too large, for example
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        result.problems.append(f"{named} in {storage.location}: {where}: {first['msg']}")
        return
    except (Conflict, ConfigError) as error:
        result.problems.append(f"{named} in {storage.location}: {error}")
        return
    result.experiments[view.id] = len(own)
    owners = {each.uuid: each.trial_id for each in client.checkpoints(view.id)}
    for last in (each[-1] for each in trials.values()):
        steps, at = _steps_of(last), last.files.stored_at
        progress = Progress(at=at, steps_completed=steps, fraction=1.0)
        send_metrics(client, owners[last.files.uuid], [progress])


def _steps_of(found: _Found) -> int:
    steps = found.metadata.get("steps_completed")
    return steps if isinstance(steps, int) and 0 <= steps < _MOST_STEPS else 0


def _trial(storage: CheckpointStorage, number: int, own: Sequence[_Found]) -> ImportedTrial:
    times = [each.files.stored_at for each in own]
    origin = own[-1].origin
    return ImportedTrial(
        source=f"trial {number}",
        state="COMPLETED",
        hparams=dict(origin.hparams or {}) if origin is not None else {},
        created_at=min(times),
        ended_at=max(times),
        steps_completed=_steps_of(own[-1]),
        seed=origin.seed or 0 if origin is not None else 0,
        checkpoints=[
            ImportedCheckpoint(
                uuid=each.files.uuid,
                path=path_of(storage, each.files.uuid),
                steps_completed=_steps_of(each),
                size_bytes=each.files.num_bytes,
                created_at=each.files.stored_at,
            )
            for each in own
        ],
    )


def _config(found: _Found, named: str) -> dict[str, Any]:
    """Return the configuration in a checkpoint; of a script, or if it is not valid, a new one."""
    own = found.origin.config if found.origin is not None else None
    if own is not None:
        labels = [*dict.fromkeys([*(own.get("labels") or []), LABEL])]
        with suppress(ConfigError):  # of another version
            return parse_config({**own, "labels": labels}, default_seed=0).to_document()
    document = {
        "name": named,
        "labels": [LABEL],
        "entrypoint": ENTRYPOINT,
        "searcher": {
            "name": "single",
            "metric": "validation_loss",
            "max_length": {"batches": max(1, _steps_of(found))},
        },
    }
    return parse_config(document, default_seed=0).to_document()


def _capsule(client: Client, storage: CheckpointStorage, found: _Found, notice: str) -> Capsule:
    """Return the captured code in a checkpoint, after storing its blobs here; else only a name."""
    blobs = BlobStore.of(client.session.info.data_dir)
    capsule = found.origin.capsule if found.origin is not None else None
    if capsule is not None:
        with (
            suppress(CheckpointError, OSError),
            storage.reading(found.files.uuid, _is_of_code) as folder,
        ):
            inner = Origin.read(folder).blobs
            stored = {digest for digest in blobs_of(capsule) if inner is not None
                      and blobs.put(inner.read(digest)) == digest}  # fmt: skip
            if stored == blobs_of(capsule):
                return capsule.model_copy(update={"notices": [*capsule.notices, notice]})
    return Capsule(
        entrypoint=ENTRYPOINT, sources=blobs.put(json.dumps({}).encode()), notices=[notice]
    )


def _is_of_code(path: str) -> bool:
    return path == LOAD_DATA_FILE or path.startswith(f"{CODE_FOLDER}/")
