"""The `bake` command: tasks and presentation. Start at `main`."""
