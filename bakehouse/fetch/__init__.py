"""Files from mirrors, origins and the cache. Start at `downloader`."""
