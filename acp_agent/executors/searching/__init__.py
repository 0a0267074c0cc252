"""What `search` runs, and how it judges what that says."""
