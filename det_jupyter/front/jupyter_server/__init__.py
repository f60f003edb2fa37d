"""The extension of Jupyter Server, through which browsers reach the master.

It runs in the user's Jupyter Server, whose event loop also carries the messages of all kernels. So
it only authorizes and relays: requests to the master (`/det-jupyter/api/`), and one WebSocket per
tab to the feeder (`/det-jupyter/socket`), a process of its own that makes what pages show.
"""
