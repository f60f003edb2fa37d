"""What ranks settle among themselves, and what happens when one is lost."""
