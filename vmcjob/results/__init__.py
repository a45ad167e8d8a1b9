"""Finished runs to energies, tables, curves, reports and exports."""
