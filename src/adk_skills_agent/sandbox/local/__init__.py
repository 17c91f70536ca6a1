"""sandbox/local"""
