"""The code of an experiment of Determined: its context directory."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from det_jupyter.client.submitting.submission import capsule_of
from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.context_dir import plan_context
from det_jupyter.contract.trial.context_dir.context_plan import MAX_BYTES
from det_jupyter.contract.values.entrypoints import entrypoint_text
from det_jupyter.errors import CaptureError

_NO_CODE = "Its code is not here, so it cannot be continued or forked"


def capsule_from(
    code: bytes, settings: ExperimentConfig, blobs: BlobStore, notices: list[str]
) -> Capsule:
    """Return the capsule of an experiment, and store the files of its context.

    Args:
        code: The context directory as a tar.gz file; b"": there is none.
        notices: For users; why there is no code is added.
    """
    entrypoint = entrypoint_text(settings.entrypoint)
    capsule = capsule_of(entrypoint, None, blobs)
    if not code:
        more = [_NO_CODE]
    else:
        try:
            with TemporaryDirectory() as folder:
                _unpack(code, Path(folder))
                capsule = capsule_of(entrypoint, plan_context(folder), blobs)
            more = capsule.notices[1:]  # the first one names the temporary folder
        except (tarfile.TarError, OSError, EOFError, zlib.error, CaptureError) as error:
            more = [f"{_NO_CODE}: {error}"]
    return capsule.model_copy(update={"notices": [*notices, *more], "packages": {}})


def _unpack(code: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(code), mode="r:gz") as archive:
        num_bytes = 0
        for member in archive:  # a small file may unpack to fill the disk
            num_bytes += member.size
            if num_bytes > MAX_BYTES:
                raise CaptureError([f"it has more than {MAX_BYTES >> 20} MiB"])
        archive.extractall(folder, filter="data")  # nothing outside of the folder, no devices
