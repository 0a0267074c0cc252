"""The guarded web access shared by the web tools: HTTP client, proxy, browser, pages as text."""
