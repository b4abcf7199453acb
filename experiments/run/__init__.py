"""What every experiment needs: journals, tables, reports."""
