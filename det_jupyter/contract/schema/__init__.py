"""What configurations are made of: kinds of fields, paths, hyperparameters and seeds.

The sections are in searcher/ (one in the file of each search method) and in config/.
"""
