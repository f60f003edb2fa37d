"""The operating system for all programs: paths, folders, locks, clocks, processes."""
