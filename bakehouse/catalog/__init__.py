"""What exists: components, recipes and committed locks as data. Start at `catalog`."""
