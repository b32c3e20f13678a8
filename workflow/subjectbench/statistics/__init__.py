"""Statistics on plain arrays: correlation, bootstrap, agreement among raters, S_h, Pareto front.

Nothing here knows files, metrics or generators. An undefined result is never a number: it comes
back as ``None`` with a reason.
"""
