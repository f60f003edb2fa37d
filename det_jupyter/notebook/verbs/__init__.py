"""What the verbs of our magics do in a notebook."""
