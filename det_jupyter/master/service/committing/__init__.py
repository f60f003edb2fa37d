"""Transactions: a request or a batch of reports is stored completely, or not at all."""
