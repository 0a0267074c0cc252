"""Tools that ask language servers and checkers."""
