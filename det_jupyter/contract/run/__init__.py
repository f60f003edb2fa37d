"""The files of a run that its agent and its ranks share: journal, control page, output."""
