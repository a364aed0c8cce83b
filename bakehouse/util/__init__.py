"""Ground of small modules that know nothing of images: files, locks, processes, terminal, OCI names."""
