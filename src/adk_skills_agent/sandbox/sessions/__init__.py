"""Python sessions: state that lasts from one execution to the next, on any backend that can host one."""
