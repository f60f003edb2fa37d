"""What people see: the notebook, the command line, and JupyterLab's pages."""
