"""Push, promote, record and look up images. Start at `publish`."""
