"""The other side of the kit: an agent that asks a client for all that ACP v1 allows, and says what it really does."""
