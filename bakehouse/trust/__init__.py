"""Statements about images: keys, bundles, policy, SBOM and provenance. Start at `bundle`."""
