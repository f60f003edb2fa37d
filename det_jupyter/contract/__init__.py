"""What all programs share: values, messages, files of a run, captured trials, the host."""
