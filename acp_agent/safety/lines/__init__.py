"""Analysis of a command line: what it runs, what it touches, how much harm it can do, and what input it waits for."""
