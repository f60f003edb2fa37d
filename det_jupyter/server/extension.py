"""The application that Jupyter Server loads."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from det_jupyter._version import __version__


class DetJupyterApp(ExtensionApp):
    """Training on several GPUs, in JupyterLab's sidebar and pages."""

    name = "det_jupyter"
    version = __version__
    description = "Training on several GPUs, in JupyterLab's sidebar and pages"
    extension_url = "/det-jupyter"
    load_other_extensions = True
