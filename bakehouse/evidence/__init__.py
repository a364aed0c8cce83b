"""What is known of images: the layers that steps gave, and what follows from them."""
