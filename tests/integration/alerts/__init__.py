"""Alerts: sending, addresses, the outbox."""
