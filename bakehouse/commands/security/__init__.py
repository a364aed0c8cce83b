"""Find known vulnerabilities in images, and their fixes. Start at `report`."""
