"""What every experiment reports with: measures, paired differences, and pages for terminal, HTML and Markdown."""
