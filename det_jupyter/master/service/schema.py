"""The tables of the store (store.py), and their version; a database of another one is refused.

A table that was added since needs no new version: older programs never look at it.
"""

from __future__ import annotations

SCHEMA_VERSION = 2

SCHEMA = """
CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, json TEXT NOT NULL);
CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE feed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    experiment_id INTEGER NOT NULL,
    trial_id INTEGER,
    first_step INTEGER,
    last_step INTEGER,
    is_passing INTEGER NOT NULL DEFAULT 0,
    json TEXT NOT NULL
);
CREATE INDEX feed_of_experiment ON feed (experiment_id, seq);
CREATE INDEX feed_passing ON feed (experiment_id, trial_id) WHERE is_passing;
CREATE INDEX feed_metrics ON feed (trial_id, last_step) WHERE kind = 'metrics';
CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    trial_id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX logs_of_trial ON logs (trial_id, id);
CREATE TABLE offsets (
    allocation_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (allocation_id, stream)
) WITHOUT ROWID;
CREATE TABLE progress (
    trial_id INTEGER PRIMARY KEY,
    steps_completed INTEGER NOT NULL,
    fraction REAL NOT NULL
);
CREATE TABLE templates (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    json TEXT NOT NULL
) WITHOUT ROWID;
"""

ADDED = """
CREATE TABLE IF NOT EXISTS timings (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    json TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS numbers (
    seq INTEGER PRIMARY KEY,
    last_experiment_id INTEGER NOT NULL,
    last_trial_id INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    experiment_id INTEGER,
    source TEXT NOT NULL,
    content TEXT NOT NULL,
    error TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS timings_of_trial ON timings (trial_id, id);
CREATE INDEX IF NOT EXISTS feed_states ON feed (experiment_id, kind, trial_id, seq)
    WHERE kind IN ('experiment', 'trial');
"""

# Every item was whole before there were others.
ADDED_COLUMN = "ALTER TABLE feed ADD COLUMN is_whole INTEGER NOT NULL DEFAULT 1"
