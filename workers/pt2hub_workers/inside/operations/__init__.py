"""Operations: running, health and maintenance."""
