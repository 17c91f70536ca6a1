"""SkillsBench tasks: read, build, solve, grade."""
