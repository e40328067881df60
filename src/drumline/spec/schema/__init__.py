"""
What may stand in a job file, as tables: one module per part, built from the kinds in ``kinds``.
"""
