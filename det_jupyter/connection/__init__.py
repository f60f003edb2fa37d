"""How a program reaches the user's master: finds it, starts it, and sends it requests."""
