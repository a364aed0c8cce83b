"""CI pipelines and IAM policies from the recipes and settings of a project. Start at `pipeline`."""
