"""The container image, built without a daemon: root file system, SBOM, archive."""
