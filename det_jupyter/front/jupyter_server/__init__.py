"""The extension of Jupyter Server, through which browsers reach the master.

It runs in the user's Jupyter Server, whose event loop also carries the messages of all kernels. So
it only authorizes and relays: requests to the master (`/det-jupyter/api/`), and one WebSocket per
tab (`/det-jupyter/socket`) to the reader, the master's process that makes what pages show.
"""
