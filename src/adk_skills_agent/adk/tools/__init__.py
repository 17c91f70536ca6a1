"""adk/tools"""
