"""Use cases: build, smoke-test, publish and run images. Start at `build`."""
