"""A captured trial."""

from __future__ import annotations

from det_jupyter.wire.states import Wire


class CapturedName(Wire):
    """One name that travels with the trial."""

    name: str
    cell: str = ""  # "In [5]", a file name, or "" when unknown
    type: str
    size_bytes: int


class ContextRef(Wire):
    """A context directory, which the ranks work in a copy of.

    Args:
        blob: Digest of its tar file, the same for the same files (context/).
        num_files: Files in it.
        size_bytes: Of all of them.
    """

    blob: str
    num_files: int
    size_bytes: int


class Capsule(Wire):
    """A trial taken out of a notebook: digests of blobs, and what a person wants to know of them.

    Args:
        entrypoint: Name of the class or function, as the configuration gives it; of a command,
            the text of it.
        payload: Blob with the pickle stream (protocol 5, cloudpickle by value); "" if the
            entrypoint is in a module, or a command.
        buffers: Blobs with the stream's out-of-band buffers, in order.
        sources: Blob with JSON `{filename: {"label": "Cell In[5]", "source": "..."}}`.
        modules: Files of local modules, by path relative to their import root, to their blobs.
        captured: What the stream holds, for people.
        packages: Versions of Python and of the imported distributions, by name.
        context: The context directory; None: ranks work in the notebook's folder itself.
        environment: Blob with JSON `{"salt": ..., "values": {name: value}}`, the environment
            variables that the configuration only names: they are nowhere else, and never shown.
        notices: Things the user should know (a CUDA tensor was copied to the CPU).
    """

    entrypoint: str
    payload: str = ""
    buffers: list[str] = []
    sources: str
    modules: dict[str, str] = {}
    captured: list[CapturedName] = []
    packages: dict[str, str] = {}
    context: ContextRef | None = None
    environment: str | None = None
    notices: list[str] = []


class CodeView(Wire):
    """The source: of cells by label ("Cell In[5]"), of modules and a context by path."""

    files: dict[str, str]
