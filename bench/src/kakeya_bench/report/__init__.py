"""What every bench makes of its figures: the document, the page, the pictures, progress, verdicts of gates."""
