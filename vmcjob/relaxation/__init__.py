"""Relaxation: from the forces at a geometry to the next geometry."""
