"""Translation of Dockerfiles into recipes, with the fate of every word. Start at `translate`."""
