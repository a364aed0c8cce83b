"""Which versions fit, and why the others do not. Start at `resolver`."""
