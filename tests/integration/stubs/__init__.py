"""Stubs for SageMaker's own libraries, copied into a test's image: see the Dockerfile."""
