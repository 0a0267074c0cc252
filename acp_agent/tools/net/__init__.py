"""The guarded web access that the web tools share: HTTP client, proxy, browser, pages as text."""
