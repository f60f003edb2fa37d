"""det_jupyter: train on several GPUs without leaving the notebook.

In a notebook, `%load_ext det_jupyter` registers the magics. From Python, `experiment(id)` and
`experiments()` return handles, `compare(3, 7)` returns how experiments differ, `slots()`,
`queue()` and `jobs()` return what runs and what waits, `preview(config)` returns what a search
would train, `submit(Trial, config)` submits an experiment, `sweep(train, space, metric="loss")`
searches the best arguments of a function in ranges such as `hp.log(1e-5, 1e-1)`,
`load_checkpoint(path)` returns a trained model, `adopt(location)` lists the checkpoints of a
bucket or folder, `model(name)`, `models()` and `create_model(name)` return handles on models of
the registry, `import_archive(path)` returns an experiment that a colleague has exported, and
`templates` are parts of configurations. Each name is imported when it is first used, so that
importing the package is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from det_jupyter._version import __version__

if TYPE_CHECKING:  # what editors and type checkers see; at run time each is imported when used
    from det_jupyter import core as core
    from det_jupyter import hp as hp
    from det_jupyter import pytorch as pytorch
    from det_jupyter.client.handles.checkpoint import load_checkpoint
    from det_jupyter.contract.values.text import LOG_FORMAT
    from det_jupyter.core import get_cluster_info
    from det_jupyter.core.importing import import_from_path
    from det_jupyter.errors import InvalidHP
    from det_jupyter.front.notebook.handles.experiment_handles import (
        compare,
        experiment,
        experiments,
        import_archive,
    )
    from det_jupyter.front.notebook.handles.models import create_model, model, models
    from det_jupyter.front.notebook.handles.slots_and_queue import jobs, queue, slots
    from det_jupyter.front.notebook.handles.storages import adopt
    from det_jupyter.front.notebook.handles.templates import templates
    from det_jupyter.front.notebook.submit.from_python import submit
    from det_jupyter.front.notebook.submit.preview_and_local import preview
    from det_jupyter.front.notebook.submit.sweeping import sweep

_HOMES = {
    name: f"det_jupyter.{module}"
    for module, names in {
        "client.handles.checkpoint": ["load_checkpoint"],
        "core": ["get_cluster_info"],
        "core.importing": ["import_from_path"],
        "errors": ["InvalidHP"],
        "front.notebook.extension": ["load_ipython_extension", "unload_ipython_extension"],
        "front.notebook.handles.slots_and_queue": ["jobs", "queue", "slots"],
        "front.notebook.handles.storages": ["adopt"],
        "front.notebook.handles.experiment_handles": [
            "compare",
            "experiment",
            "experiments",
            "import_archive",
        ],
        "front.notebook.handles.models": ["create_model", "model", "models"],
        "front.notebook.handles.templates": ["templates"],
        "front.notebook.submit.from_python": ["submit"],
        "front.notebook.submit.preview_and_local": ["preview"],
        "front.notebook.submit.sweeping": ["sweep"],
        "front.jupyter_server.extension_points": [
            "_jupyter_labextension_paths",
            "_jupyter_server_extension_points",
        ],
        "contract.values.text": ["LOG_FORMAT"],
    }.items()
    for name in names
}
_LIBRARIES = (
    "core",
    "hp",
    "pytorch",
)  # so that `import det_jupyter as det` is enough for `det.core`

__all__ = [
    "LOG_FORMAT",
    "InvalidHP",
    "__version__",
    "adopt",
    "compare",
    "create_model",
    "experiment",
    "experiments",
    "get_cluster_info",
    "import_archive",
    "import_from_path",
    "jobs",
    "load_checkpoint",
    "model",
    "models",
    "preview",
    "queue",
    "slots",
    "submit",
    "sweep",
    "templates",
]


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        return importlib.import_module(f"det_jupyter.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_LIBRARIES})
