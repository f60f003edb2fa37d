"""The program that sends experiments to trackers: one process for each tracker.

The libraries of trackers are imported only here. The program reads the master's feed from a stored
position on, sends what is new, and then stores the new position in the master; see
master/service/storing/tracked.py.
"""
