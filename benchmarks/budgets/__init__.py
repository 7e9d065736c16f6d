"""What `budget.py` is made of: cases, turns that are measured, the file of them, figures, tables, picture, check."""
