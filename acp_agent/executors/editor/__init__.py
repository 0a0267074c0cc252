"""The editor's terminals and buffers, as far as it offers them."""
