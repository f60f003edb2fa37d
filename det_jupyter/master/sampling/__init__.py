"""Optuna's samplers and pruners, asked for parameters and judgements. Not pure."""
