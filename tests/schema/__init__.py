"""The protocol's types: freshly generated, read and written as the schema says."""
