"""The version, written once; `pyproject.toml` and the front end read it from here."""

__version__ = "0.1.0"
