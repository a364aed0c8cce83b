"""Push, promote and attest images. Start at `publish`."""
