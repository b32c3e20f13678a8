"""Requests to whoever answers: kept, limited, counted, never bought twice."""
