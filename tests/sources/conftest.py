"""Fixtures of the tests about sources."""

from repositories import first_commit as first_commit
from repositories import project as project
from repositories import repository as repository
from repositories import run as run
from repositories import store as store
