"""Performance: measurements, series and comparisons."""
