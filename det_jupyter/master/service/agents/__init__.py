"""Agents: which may connect, their links and clocks, and what they carry for others."""
