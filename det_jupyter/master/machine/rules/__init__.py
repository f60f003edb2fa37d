"""Decisions that several events share: placing, searching, verdicts, retention."""
