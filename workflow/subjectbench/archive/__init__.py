"""What outlives a checkout: results shared by DVC and archived, checked, explained, collected."""
