"""A captured trial."""

from __future__ import annotations

from det_jupyter.contract.messages.states import Wire


class CapturedName(Wire):
    """One name that travels with the trial."""

    name: str
    cell: str = ""  # "In [5]", a file name, or "" when unknown
    type: str
    size_bytes: int


class ContextRef(Wire):
    """A context directory, which the ranks work in a copy of."""

    blob: str  # digest of its tar file, the same for the same files (context/)
    num_files: int  # files in it
    size_bytes: int  # of all of them


class Capsule(Wire):
    """A trial taken out of a notebook: digests of blobs, and what a person wants to know."""

    # Name of the class or function, as the configuration gives it; of a command, the text of it.
    entrypoint: str
    # Blob with the pickle stream (protocol 5, cloudpickle by value); "" if the entrypoint is in a
    # module, or a command.
    payload: str = ""
    buffers: list[str] = []  # blobs with the stream's out-of-band buffers, in order
    sources: str  # blob with JSON `{filename: {"label": "Cell In[5]", "source": "..."}}`
    # Files of local modules, by path relative to their import root, to their blobs.
    modules: dict[str, str] = {}
    captured: list[CapturedName] = []  # what the stream holds, for people
    packages: dict[str, str] = {}  # versions of Python and of the imported distributions, by name
    # The context directory; None: ranks work in the notebook's folder itself.
    context: ContextRef | None = None
    # Blob with JSON `{"salt": ..., "values": {name: value}}`, the environment variables that the
    # configuration only names: they are nowhere else, and never shown.
    environment: str | None = None
    notices: list[str] = []  # things the user should know (a CUDA tensor was copied to the CPU)


class CodeView(Wire):
    """The source: of cells by label ("Cell In[5]"), of modules and a context by path."""

    files: dict[str, str]
