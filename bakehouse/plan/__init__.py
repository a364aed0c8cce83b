"""Stages, build keys and the text of Dockerfiles. Start at `workspace`."""
