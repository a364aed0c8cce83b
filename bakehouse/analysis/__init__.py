"""Read built images: sizes, contents, differences. Start at `sizes`."""
