"""Draws subjects and scenes whose truth is known.

A subject is a handful of named attributes, a scene is what a prompt asks for, and a picture is a
pure function of the two. So how much of the subject was kept, how much of the prompt was followed
and how damaged the picture is are known by construction, not estimated.
"""
