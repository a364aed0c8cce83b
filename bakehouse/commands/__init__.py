"""Code that one command needs and nothing else: a directory for each, which can be deleted with its task."""
