"""Signed statements about images: keys, in-toto statements and Sigstore bundles. Start at `bundle.py`."""
