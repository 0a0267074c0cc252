"""The sub-commands of `acp-coder`, one file each, loaded by name."""
