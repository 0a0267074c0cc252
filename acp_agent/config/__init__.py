"""Configuration: defaults < user file < project file < environment < flags; every value knows where it came from.

`sources` finds and reads (standard library only: it is on the path to the first answer), `model` says what may be set,
`load` joins them into a `Config`.
"""
