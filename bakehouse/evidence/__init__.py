"""Records of the layers that build steps gave, and the states of images that follow from them."""
