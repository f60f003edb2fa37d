"""The extension of Jupyter Server, in a real server; its fixtures are pytest-jupyter's."""
