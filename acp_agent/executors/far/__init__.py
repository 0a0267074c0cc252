"""Commands and files on another machine: a program of ours over there, and the connection to it."""
