"""Calls functions that other people wrote: sync or async, and blocking ones in threads. Knows no tools and no turns."""
