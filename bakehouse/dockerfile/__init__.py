"""Translates Dockerfiles into recipes, and accounts for each of their words. Read `translate` first."""
