"""What agents report becomes rows and events."""
