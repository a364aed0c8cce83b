"""The tasks of the `bake` command, one module for each group. Start at `collection`."""
