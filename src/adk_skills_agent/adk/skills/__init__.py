"""The skills a toolset is given: folders on disk, objects in memory, and where they come from."""
