"""What each of our processes needs of the computer: paths, folders, locks, clocks, processes."""
