"""Optuna's samplers and pruners: hyperparameters, decisions to prune, importance. Not pure."""
