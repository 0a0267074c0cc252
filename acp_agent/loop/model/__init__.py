"""Requests to the model: the available models, one request, one turn of requests and calls."""
