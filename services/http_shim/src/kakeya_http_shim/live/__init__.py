"""What the live page is made of: its routes, the feed of what runs, and answers that outlive their connection."""
