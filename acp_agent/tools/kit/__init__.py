"""The kit for building tools: the interface, the table, schemas, errors."""
