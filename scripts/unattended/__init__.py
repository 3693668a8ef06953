"""What a run without a person needs: a log that is kept for a while, one line or a summary for the mail."""
