"""The reader: a program that turns the master's state into the documents that users see.

There is one reader per master. It reads the master's database, and sends documents and their
changes over WebSockets (contract/messages/pages.py). It sends requests to the master only to
answer questions and to carry out changes.
"""
