"""Build the fleet, verify it, rehearse it. Start at `build`."""
