"""The solver benchmark: suites of instances, solvers and peers side by side, results that can be resumed.

``suite`` (spec) ──``instances.expand``──▶ instances ──``run``──▶ rows in a journal ──``report``──▶ tables, charts
"""
