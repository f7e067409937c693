"""The display of an event, and the figures and the page of an evaluation.

They need the extra `report`: matplotlib, mplhep and jinja2, which are imported only when something is drawn.
"""
