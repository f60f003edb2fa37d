"""What Determined has and det_jupyter has not, and the errors of those who ask for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from determined._beside import PAGE

# Name, or beginning of names, to what takes its place. docs/from-determined.md has the same list.
LACKING = {
    "determined.ExperimentConfig": "info.trial and context.get_experiment_config() have it",
    "determined.RendezvousInfo": "get_cluster_info().container_addrs has the addresses",
    "determined.ResourcesInfo": "get_cluster_info().slot_ids has the slots",
    "determined.common": "",
    "determined.core.Dummy": "core.init() outside of experiments makes the same contexts",
    "determined.estimator": "det_jupyter trains PyTorch models",
    "determined.experimental.unmanaged": "core_v2 does it",
    "determined.keras": "there is DeterminedCallback, for Keras 3 on torch",
    "determined.launch.tensorflow": "det_jupyter trains PyTorch models",
    "determined.lightning": "use DetCallback of det_jupyter.integrations.lightning",
    "determined.pytorch.deepspeed": "its trials divide the data among all ranks; use a script",
    "determined.pytorch.lightning": "use DetCallback of det_jupyter.integrations.lightning",
    "determined.tensorflow": "det_jupyter trains PyTorch models",
    "determined.experimental.client.get_project": "there are no projects",
    "determined.experimental.client.get_workspace": "there are no workspaces",
    "determined.experimental.client.create_workspace": "there are no workspaces",
    "determined.experimental.client.create_user": "there are no users: each has an own master",
}


def error(owner: str, name: str) -> AttributeError:
    """Return the error of a name that a module or a handle lacks."""
    return AttributeError(_message(f"{owner}.{name}"), name=name)


class Handle:
    """The part of a handle that says which of Determined's methods it lacks."""

    def __getattr__(self, name: str) -> Any:
        raise error(type(self).__name__, name)


def asked_of(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that lacks every further name."""

    def refuse(name: str) -> Any:
        raise error(module, name)

    return refuse


def _message(name: str) -> str:
    text = f"det_jupyter has no {name}"
    reason = next((why for start, why in LACKING.items() if name.startswith(start)), "")
    return f"{text}: {reason} (see {PAGE})" if reason else f"{text} (see {PAGE})"


class _LastFinder(MetaPathFinder):
    """Finds nothing; is asked for modules of this package that no other finder has found.

    `from determined.pytorch import Name` asks for a module `determined.pytorch.Name`, too, when
    the package has no such attribute. So its error is the one that is shown.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("determined.") or fullname.rpartition(".")[2].startswith("_"):
            return None
        # Without the module's name: an error of that name would be taken for a missing attribute,
        # and Python would say only "cannot import name".
        raise ModuleNotFoundError(_message(fullname))


def install() -> None:
    """Have imports of what is lacking end with our words."""
    if not any(isinstance(finder, _LastFinder) for finder in sys.meta_path):
        sys.meta_path.append(_LastFinder())
