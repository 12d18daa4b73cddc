"""Text for people: values, figures and comparisons as the command line, prompts, notebooks and pages show them."""
