"""JupyterLab as a fork of a process that has loaded it; its kernels are forks, too.

    tests ──ask──> source with JupyterLab ──forks──> server ──asks─┐
      └────ask──> source with torch ──forks──> branch <────────────┘ ──forks──> kernels

[m] A server takes 0.2 instead of 2.0 s of CPU for its start and end, a kernel 0.25 instead of 0.6,
and a kernel that imports torch 0.2 instead of 2.3.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tests.forks import Branch, Fork, fork_source, torch_source

# As in `start_server`.
sys.modules.setdefault("rfc3987_syntax", ModuleType("rfc3987_syntax"))

_MODULES = (
    __name__, "jupyterlab.labapp", "notebook.app", "tests.notebook_kernel",
    "det_jupyter.front.jupyter_server.application", "det_jupyter.front.jupyter_server.routes",
    *(
        f"jupyter_server.{name}.handlers"
        for name in (
            "kernelspecs", "nbconvert", "services.api", "services.config", "services.contents",
            "services.events", "services.kernels", "services.kernelspecs", "services.nbconvert",
            "services.security", "services.sessions", "view",
        )
    ),
)  # fmt: skip


def fork_server(options: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Fork:
    """Start JupyterLab as `start_server` does."""
    log = folder / "lab.log"
    with torch_source().branch() as kernels:
        return fork_source(*_MODULES).start(
            f"{__name__}:main",
            argv=["jupyter-lab", *options],
            environment={**os.environ, **variables},
            outputs=[log, log],
            descriptors=[kernels.fileno()],
        )


def main(descriptor: int) -> None:
    """Run JupyterLab in the fork; this socket is that of the source of kernels."""
    from jupyter_client import provisioning
    from jupyter_client.provisioning.local_provisioner import LocalProvisioner
    from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]

    from tests.notebook_kernel import ForkingProvisioner

    faulthandler.enable()
    source = Branch(descriptor)
    ForkingProvisioner.source = staticmethod(lambda: source)
    # Here Jupyter finds what starts kernels, except those of ranks.
    vars(provisioning)[LocalProvisioner.__name__] = ForkingProvisioner
    LabApp.launch_instance()
