"""What a live view is fed with, whichever program does it: answers to its questions."""
