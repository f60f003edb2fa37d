"""Values that programs share: lengths, bounds, numbers and text. Pure."""
