"""Regional compilation: repeated blocks of a model are compiled once and called in turn."""
