"""The handlers of events, grouped by subject. Each is a function `on_...(turn, event)`."""
