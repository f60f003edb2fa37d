"""The trial's code as it travels from the notebook to the ranks."""
