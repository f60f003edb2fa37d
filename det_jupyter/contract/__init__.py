"""What programs share: values, messages, files of a run, the captured trial, the host."""
