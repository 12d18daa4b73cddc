"""Access: tokens and sessions."""
