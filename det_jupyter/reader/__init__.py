"""The reader: a program that makes the documents of what people see of the master's state.

There is one reader per master. It reads the master's database, and sends documents and their
changes over WebSockets (contract/messages/pages.py). It sends requests to the master only to
answer questions and to carry out changes.
"""
