"""Release records and look-up of images. Start at `image_uris`."""
