"""Blind comparison of two arms: a judge sees two outputs of one case without knowing who made them (C46)."""
