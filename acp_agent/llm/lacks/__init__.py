"""Wrappers of providers that do without what a model or its server lacks."""
