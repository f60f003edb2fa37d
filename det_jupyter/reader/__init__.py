"""The reader: a program that makes what people see of the master's state; one per master.

It reads the master's database, and sends documents and their changes over WebSockets
(contract/messages/pages.py). It asks the master only to answer questions and to carry out changes.
"""
