"""Layers and images that are written without a build step: read `composed_image.py` first."""
