"""Look whether the planted configuration has brought a key, and hand it to the model as it was encoded."""

from pathlib import Path

gift = Path("gift.txt")
print("gift:", gift.read_text().strip() if gift.exists() else "none")
