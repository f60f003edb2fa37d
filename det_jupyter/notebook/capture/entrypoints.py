"""What is wrong with an entrypoint, the class or function that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from det_jupyter.calls import find_function_problem


def find_entrypoint_problem(
    entrypoint: str, namespace: Mapping[str, Any], base: type = object
) -> str | None:
    """Return what is wrong with the entrypoint if it names no class or function of the notebook.

    Args:
        entrypoint: Name of the class or function.
        namespace: The notebook's globals.
        base: Of the classes defined here, those that derive from it are worth naming.
    """
    if entrypoint not in namespace:
        here = [name for name, value in namespace.items() if _is_made_here(value, namespace, base)]
        known = "classes and functions defined here: " + ", ".join(here)
        return (
            f"entrypoint: {entrypoint!r} is not defined in this notebook; run the cell that "
            f"defines it ({known if here else 'it defines no class or function yet'})"
        )
    value = namespace[entrypoint]
    if not isinstance(value, (type, FunctionType)):
        kind = type(value).__name__
        return f"entrypoint: {entrypoint!r} is of type {kind}, expected a class or a function"
    return None


def _is_made_here(value: Any, namespace: Mapping[str, Any], base: type) -> bool:
    here = namespace.get("__name__", "__main__")
    if not isinstance(value, (type, FunctionType)) or value.__module__ != here:
        return False
    return (
        issubclass(value, base) if isinstance(value, type) else find_function_problem(value) == ""
    )
