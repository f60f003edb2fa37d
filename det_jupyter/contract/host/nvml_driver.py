"""Opens NVML, the library of NVIDIA's driver. This module imports little.

DET_JUPYTER_FAKE_NVML=MODULE    is imported instead of pynvml, for tests without a GPU
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from det_jupyter.contract.values.text import error_text

FAKE_NVML_VARIABLE = "DET_JUPYTER_FAKE_NVML"


class DriverError(Exception):
    """NVML does not work, or cannot read a device."""


def initialised_nvml() -> Any:
    """Return the module `pynvml`, initialised.

    Raises:
        DriverError: NVML does not work.
    """
    try:
        nvml = import_module(os.environ.get(FAKE_NVML_VARIABLE) or "pynvml")
        nvml.nvmlInit()
    except Exception as error:  # no library, no driver, a driver of another version
        raise DriverError(f"NVML does not work: {error_text(error)}") from error
    return nvml


def text_of(value: str | bytes) -> str:
    """Decode a text returned by NVML, which is bytes before nvidia-ml-py 11.5."""
    return value.decode() if isinstance(value, bytes) else value
