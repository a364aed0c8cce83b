"""New upstream releases as proposals for components. Start at `update`."""
