"""Front page: what is in production, what needs somebody, and one line for each model."""
