"""Other libraries' trainers report to their experiment, are paused and resumed: one module each.

Each module uses the public Core API, and the callbacks of its library, which has to be installed.
"""

from __future__ import annotations

from importlib import metadata

from det_jupyter.errors import DetError

# The versions of libraries from which on the integrations work.
LEAST = {
    "accelerate": "1.1",
    "deepspeed": "0.14",
    "keras": "3.7",
    "lightning": "2.4",
    "transformers": "5.0",
}


def require(package: str) -> None:
    """Check that a package is installed, in its version of `LEAST` or a later one.

    Raises:
        DetError: It is not; the message has the command that installs it.
    """
    least = LEAST[package]
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        found = "is not installed"
    else:
        if _numbers(installed) >= _numbers(least):
            return
        found = f"has version {installed}"
    raise DetError(
        f"det_jupyter.integrations.{package} needs {package} {least} or later, which {found}; run "
        f"`python -m pip install 'det-jupyter[{package}]'`"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2])
