"""The tests, with the same layout as the package."""
