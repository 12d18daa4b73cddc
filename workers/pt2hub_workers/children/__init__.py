"""Child processes: started early, used once, watched while they work."""
