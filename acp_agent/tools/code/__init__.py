"""Tools that use language servers and checkers."""
