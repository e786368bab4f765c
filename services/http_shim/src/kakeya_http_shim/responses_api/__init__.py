"""OpenAI's Responses, as Open Responses describes them: requests into those of a chat, and answers in their form."""
