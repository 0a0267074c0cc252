"""The guarded way to the web that the tools for it share: HTTP client, proxy, browser, pages as text."""
