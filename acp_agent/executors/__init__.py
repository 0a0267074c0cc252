"""Where commands run and files live. Tools see `base` only; `build.py` chooses what is behind it."""
