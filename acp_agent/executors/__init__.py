"""Where commands run and files live. Tools see only `base`; `build/` chooses the backend."""
