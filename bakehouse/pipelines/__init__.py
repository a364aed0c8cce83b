"""CI pipelines, generated from the recipes and settings of a project; open `pipeline` first."""
