"""The program that sends experiments to trackers: a process beside the master, one for each place.

Only here are the libraries of trackers imported. It reads the master's feed from a stored position
on, sends what is new, and then has the position advanced; see master/service/storing/tracked.py.
"""
