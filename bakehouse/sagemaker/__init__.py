"""Send, follow and run jobs. Start at `launch`."""
