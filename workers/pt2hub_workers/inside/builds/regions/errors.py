"""Why a program is compiled as a whole."""

from __future__ import annotations


class RegionsImpossible(Exception):
    """The program cannot be compiled by regions; the text says why, as a sentence without its end."""
