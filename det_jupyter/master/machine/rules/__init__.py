"""Decisions that several handlers share: allocation of slots, searches, ends, retention."""
