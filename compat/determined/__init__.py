"""The names of Determined, which are det_jupyter's: code written for it runs unmodified.

Every name is looked up when it is first used, so that `python3 -m determined.launch.wrap_rank`
costs no import of torch. What is lacking raises an error that names docs/from-determined.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from determined import _beside, _lacking

if TYPE_CHECKING:  # what editors and type checkers see; at run time each is imported when used
    from det_jupyter import LOG_FORMAT, InvalidHP, get_cluster_info, import_from_path
    from det_jupyter.core import TrialInfo
    from det_jupyter.core import TrialInfo as ClusterInfo
    from det_jupyter.pytorch import PyTorchTrial as LegacyTrial
    from det_jupyter.pytorch import PyTorchTrialContext as TrialContext
    from determined import core as core
    from determined import errors as errors
    from determined import experimental as experimental
    from determined import launch as launch
    from determined import pytorch as pytorch
    from determined import util as util

_beside.refuse_the_real_one()
_lacking.install()
_beside.warn_once()

__version__ = "0.38.1"  # of the Determined whose names these are

_HOMES = {
    "ClusterInfo": ("det_jupyter.core", "TrialInfo"),
    "InvalidHP": ("det_jupyter.errors", "InvalidHP"),
    "LOG_FORMAT": ("det_jupyter", "LOG_FORMAT"),
    "LegacyTrial": ("det_jupyter.pytorch", "PyTorchTrial"),
    "TrialContext": ("det_jupyter.pytorch", "PyTorchTrialContext"),
    "TrialInfo": ("det_jupyter.core", "TrialInfo"),
    "get_cluster_info": ("det_jupyter.core", "get_cluster_info"),
    "import_from_path": ("det_jupyter", "import_from_path"),
}
_PARTS = {
    "core", "errors", "experimental", "keras", "launch", "pytorch", "tensorboard", "transformers",
    "util",
}  # fmt: skip

__all__ = [
    "LOG_FORMAT",
    "ClusterInfo",
    "InvalidHP",
    "LegacyTrial",
    "TrialContext",
    "TrialInfo",
    "__version__",
    "core",
    "errors",
    "experimental",
    "get_cluster_info",
    "import_from_path",
    "launch",
    "pytorch",
    "util",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"determined.{name}")
    if name in _HOMES:
        home, its_name = _HOMES[name]
        return getattr(importlib.import_module(home), its_name)
    raise _lacking.error(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PARTS})
