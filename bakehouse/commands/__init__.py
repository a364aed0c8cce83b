"""What one command needs and nothing else: a folder for each, which can be deleted with its task."""
