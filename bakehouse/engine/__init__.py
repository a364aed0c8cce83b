"""The container engine and BuildKit. Start at `protocol`."""
