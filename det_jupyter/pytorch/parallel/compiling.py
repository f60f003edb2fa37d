"""`torch.compile` for a model, and a check of its requirements before training."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

import torch
from torch import nn

from det_jupyter.errors import ConfigError

_WHERE = "optimizations.compile"


def compile_in_place(models: list[nn.Module], backend: bool | str, device: torch.device) -> None:
    """Let the modules be compiled when they first run; the names of their parameters stay.

    Args:
        models: What is compiled, each on its own.
        backend: True for torch's default.
        device: Where they run.

    Raises:
        ConfigError: It cannot work here.
    """
    name = backend if isinstance(backend, str) else "inductor"
    if problems := compile_problems(name, device):
        raise ConfigError(problems)
    for model in models:
        model.compile(backend=name)


def compile_problems(backend: str, device: torch.device) -> list[str]:
    """Return what is missing on this computer to compile with the backend."""
    from torch import _dynamo  # takes a second, which only those who compile should pay

    if not _dynamo.is_dynamo_supported():  # type: ignore[attr-defined]  # public, but not in __all__
        version = ".".join(str(part) for part in sys.version_info[:2])
        return [f"{_WHERE}: torch {torch.__version__} cannot compile under Python {version}"]
    known = _dynamo.list_backends(exclude_tags=())
    if backend not in known:
        return [
            f"{_WHERE}: got {backend!r}, which is no backend of torch.compile here; "
            f"there are {', '.join(sorted(known))}"
        ]
    if backend != "inductor":
        return []
    if device.type == "cuda" and find_spec("triton") is None:
        return [
            f"{_WHERE}: the backend inductor needs Triton on a GPU, which is not installed; "
            "install the package triton, or leave compile out"
        ]
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    if not any(shutil.which(compiler) for compiler in compilers):
        return [
            f"{_WHERE}: the backend inductor needs a C++ compiler, and there is no "
            f"{' or '.join(compilers)} on this computer; install g++, set the environment "
            "variable CXX to a compiler, or use compile: aot_eager"
        ]
    return []
