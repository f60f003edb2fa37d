"""The feeder: a program that sends JupyterLab's pages what they show; one per Jupyter Server.

The server extension starts it. It follows the master, builds the states of views (`view/`),
answers questions (`reader/answers/`), and sends both over the sockets of the browser's tabs, which
the server extension relays. It is a process of its own because building a state takes milliseconds
for which the server's event loop would stand still.
"""
