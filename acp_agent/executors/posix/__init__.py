"""Hosts without Python: a POSIX shell there does what `far` sends a program for."""
