"""What one command needs and nothing else; only a task of `cli` imports it, when it runs."""
