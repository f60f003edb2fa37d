"""The extension of Jupyter Server: what browsers reach of the master.

It runs in the user's Jupyter Server, whose event loop also carries every kernel's messages. So it
only checks and passes on: requests to the master (`/det-jupyter/api/`), and one WebSocket per tab
to the feeder (`/det-jupyter/socket`), a process of its own that makes what pages show.
"""
