"""What was found: the document, and the card, the page and the pictures that are made of it."""
