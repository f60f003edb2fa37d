"""Building blocks of the configuration: field types, key paths, hyperparameters and seeds.

The sections themselves are in config/, and in searcher/ (one in the file of each search method).
"""
