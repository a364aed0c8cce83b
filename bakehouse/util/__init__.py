"""Small modules that do not depend on images: files, locks, processes, terminal, OCI names."""
