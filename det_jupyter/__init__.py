"""det_jupyter: train on several GPUs without leaving the notebook.

In a notebook, `%load_ext det_jupyter` registers the magics. From Python, `experiment(id)` and
`experiments()` return handles, `compare(3, 7)` says how experiments differ, `slots()`, `queue()`
and `jobs()` say who runs and who waits, `preview(config)` says what a search would train,
`submit(Trial, config)` submits an experiment, and `templates` are parts of configurations.
Everything is looked up when it is first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from det_jupyter._version import __version__

if TYPE_CHECKING:  # what editors and type checkers see; at run time each is imported when used
    from det_jupyter import core as core
    from det_jupyter import pytorch as pytorch
    from det_jupyter.core import get_cluster_info
    from det_jupyter.core.importing import import_from_path
    from det_jupyter.errors import InvalidHP
    from det_jupyter.notebook.handles.cluster import jobs, queue, slots
    from det_jupyter.notebook.handles.experiments import compare, experiment, experiments
    from det_jupyter.notebook.handles.templates import templates
    from det_jupyter.notebook.submit.from_python import submit
    from det_jupyter.notebook.submit.preview import preview
    from det_jupyter.words import LOG_FORMAT

_HOMES = {
    "LOG_FORMAT": "det_jupyter.words",
    "InvalidHP": "det_jupyter.errors",
    "compare": "det_jupyter.notebook.handles.experiments",
    "experiment": "det_jupyter.notebook.handles.experiments",
    "experiments": "det_jupyter.notebook.handles.experiments",
    "get_cluster_info": "det_jupyter.core",
    "import_from_path": "det_jupyter.core.importing",
    "jobs": "det_jupyter.notebook.handles.cluster",
    "preview": "det_jupyter.notebook.submit.preview",
    "queue": "det_jupyter.notebook.handles.cluster",
    "slots": "det_jupyter.notebook.handles.cluster",
    "submit": "det_jupyter.notebook.submit.from_python",
    "templates": "det_jupyter.notebook.handles.templates",
    "_jupyter_labextension_paths": "det_jupyter.server.places",
    "_jupyter_server_extension_points": "det_jupyter.server.places",
    "load_ipython_extension": "det_jupyter.notebook.extension",
    "unload_ipython_extension": "det_jupyter.notebook.extension",
}
_LIBRARIES = ("core", "pytorch")  # so that `import det_jupyter as det` is enough for `det.core`

__all__ = [
    "LOG_FORMAT",
    "InvalidHP",
    "__version__",
    "compare",
    "experiment",
    "experiments",
    "get_cluster_info",
    "import_from_path",
    "jobs",
    "preview",
    "queue",
    "slots",
    "submit",
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
