"""Reading a command line: what runs in it, what it touches, how much harm it can do, and what it waits for."""
