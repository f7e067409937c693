"""Seeing results: the display of an event, the figures and the page of an evaluation.

Needs the extra `report`: matplotlib, mplhep, jinja2. They are imported when something is drawn, not before.
"""
