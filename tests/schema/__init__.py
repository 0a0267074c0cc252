"""The words of the protocol: generated fresh, read and written as the schema says."""
