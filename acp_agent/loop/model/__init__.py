"""Asking the model: which there are, one request, one turn of requests and calls."""
