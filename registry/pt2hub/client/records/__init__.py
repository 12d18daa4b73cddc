"""Records of versions: what bundles bring besides artifacts, and how it answers while no server is asked."""
