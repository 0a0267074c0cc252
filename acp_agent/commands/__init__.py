"""The sub-commands of `acp-agent`, one file each, loaded by name."""
