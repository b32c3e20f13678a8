"""The work of each rule: read upstream artifacts, call a plug-in, write one artifact."""
