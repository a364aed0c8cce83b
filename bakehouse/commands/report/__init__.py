"""The fleet as one static page; open `fleet` for its content, then `page`."""
