"""Statistics of measurements: comparisons and change points. Independent of database and models."""
