"""The `det` command: the verbs of `%det` and `%det_experiment` in a shell, and some of its own."""
