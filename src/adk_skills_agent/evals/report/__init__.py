"""The report of a run: one HTML file that needs no network, with every trial's trace in it."""

from adk_skills_agent.evals.report.write import Report, build_report, write_report

__all__ = ["Report", "build_report", "write_report"]
