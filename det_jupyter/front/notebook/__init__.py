"""The code in the user's kernel: magics, capture, handles with a live view."""
