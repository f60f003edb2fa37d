"""Makes what pages show: a program that the server extension starts, one per Jupyter Server.

It follows the master, builds states for views (`view/`), answers their questions (`live/`), and
sends both over the sockets of the browser's tabs, which the server extension passes on. It is a
process of its own because building a state takes milliseconds that the server's loop cannot spare.
"""
