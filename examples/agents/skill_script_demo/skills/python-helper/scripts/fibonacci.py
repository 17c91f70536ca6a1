"""Print the first Fibonacci numbers as JSON."""

import argparse
import json

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--count", type=int, required=True, help="how many numbers, 1 to 1000")
count = parser.parse_args().count
if not 1 <= count <= 1000:
    parser.error(f"--count must be from 1 to 1000, got {count}")
numbers = [0, 1]
while len(numbers) < count:
    numbers.append(numbers[-1] + numbers[-2])
numbers = numbers[:count]
print(json.dumps({"count": count, "numbers": numbers, "last": numbers[-1]}))
