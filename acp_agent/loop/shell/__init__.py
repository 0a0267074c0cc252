"""Where and how commands run and files are accessed."""
