"""What sessions are fed: facts, fillers, dialogues and texts, as scripts."""
