"""Write the locks. Start at `lock`."""
