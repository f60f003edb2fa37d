"""The user interfaces: the notebook, the command line, and JupyterLab's pages."""
