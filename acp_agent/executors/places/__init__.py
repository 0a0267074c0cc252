"""Places other than this machine, in which commands run."""
