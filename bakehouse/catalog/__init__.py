"""Components, recipes, instance types and committed locks. Start at `catalog`."""
