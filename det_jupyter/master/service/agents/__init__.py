"""Agents: which may connect, their links and clocks, and the connections that they carry."""
