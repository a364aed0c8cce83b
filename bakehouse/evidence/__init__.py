"""Records of the layers that build steps gave and of results of checks, and the states of images by them."""
